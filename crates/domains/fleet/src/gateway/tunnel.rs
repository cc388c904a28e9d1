//! A connection that a node dialled because a gateway of this process needs it.

use std::{sync::Arc, time::Duration};

use kernel::CorrelationId;
use node_proto::contract::{self, TunnelClass};
use node_tunnel::{Profile, Tunnel};
use pg::Origin;
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::server::TlsStream;

use super::{
    Shared,
    caller::{self, Connection},
    listener::Listener,
    refusals::Refused,
};

/// What is known of a node is looked at so often; a revocation is announced, so that it is known at once.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Looks that may fail one after the other before the tunnel ends: nobody keeps one because nobody can say whether they may.
const MOST_FAILED: u32 = 3;
/// A node that renewed its certificate dials anew for new streams. Those that are open may go on for so long.
const DRAIN: Duration = Duration::from_secs(3600);

/// Whether a node may have a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerStatus {
    Good,
    /// By a certificate that the node itself has replaced since it dialled.
    Replaced,
    /// Refused, and recorded.
    Refused,
    /// It could not be looked at.
    Unknown,
}

impl Listener {
    /// Until the tunnel ends, the node loses its standing, or the process stops.
    pub(super) async fn tunnel(
        &self,
        stream: TlsStream<TcpStream>,
        connection: Arc<Connection>,
        class: TunnelClass,
    ) {
        let (Some(tunnels), Some(node), Some((profile, _))) =
            (&self.shared.tunnels, connection.node(), Profile::for_class(class))
        else {
            return;
        };
        let origin = Origin {
            correlation_id: CorrelationId(self.shared.fleet.db().ambient().uuid()),
            source_ip: Some(connection.source.to_canonical().to_string()),
            traceparent: None,
        };
        if self.shared.peer_status(&connection, &origin).await != PeerStatus::Good {
            return;
        }
        let tunnel = match Tunnel::start(stream, profile).await {
            Ok(tunnel) => Arc::new(tunnel),
            Err(error) => {
                tracing::debug!(node_id = %node, %error, "a tunnel could not be started");
                return;
            }
        };
        let mut registered = Some(tunnels.register(node, class, tunnel.clone()));
        metrics::counter!("node_tunnels_total").increment(1);
        tracing::debug!(node_id = %node, ?class, "a node has connected a tunnel");
        let mut check = tokio::time::interval(CHECK_EVERY);
        check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut failed, mut drained_by) = (0, None);
        loop {
            tokio::select! {
                () = tunnel.ended() => return,
                () = self.stop.cancelled() => return,
                _ = check.tick() => {}
            }
            match self.shared.peer_status(&connection, &origin).await {
                PeerStatus::Good => failed = 0,
                PeerStatus::Replaced => {
                    registered = None;
                    let until = *drained_by.get_or_insert_with(|| Instant::now() + DRAIN);
                    if tunnel.open_streams() == 0 || Instant::now() >= until {
                        return;
                    }
                }
                PeerStatus::Unknown if failed < MOST_FAILED => failed += 1,
                PeerStatus::Unknown | PeerStatus::Refused => {
                    drop(registered);
                    return;
                }
            }
        }
    }
}

impl Shared {
    /// By the rules for requests of the node.
    async fn peer_status(&self, connection: &Connection, origin: &Origin) -> PeerStatus {
        let certificate = match caller::certificate(connection, self.fleet.db().ambient().now()) {
            Ok(certificate) => certificate,
            Err(_) => return PeerStatus::Refused,
        };
        let refusal = match Box::pin(self.trust(certificate, &contract::WAIT, origin)).await {
            Ok(Ok(_)) => return PeerStatus::Good,
            Ok(Err(refusal)) => refusal,
            Err(failure) => {
                tracing::warn!(error = ?failure, "whether a node may keep its tunnel could not be checked");
                return PeerStatus::Unknown;
            }
        };
        match Box::pin(self.note_copy(connection, &refusal, origin)).await {
            Ok(false) if refusal.is_replaced() => return PeerStatus::Replaced,
            Ok(_) => {}
            Err(failure) => {
                tracing::warn!(error = ?failure, "the use of a copied certificate could not be recorded");
            }
        }
        let refused = Refused {
            reason: refusal.reason,
            action: "node.tunnel",
            node: connection.node(),
            target: ("node", connection.node().map(|node| node.to_string())),
            code: refusal.problem.code,
            source: connection.source,
        };
        Box::pin(self.refusals.note(self.fleet.db(), refused, origin)).await;
        PeerStatus::Refused
    }
}
