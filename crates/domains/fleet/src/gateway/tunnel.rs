//! A connection that a node dialled because a gateway of this process needs it.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use kernel::{Code, CorrelationId, Failure};
use node_proto::contract::{self, TunnelClass};
use node_tunnel::{Profile, ReadAhead, Tunnel};
use pg::Origin;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use trust::peer::PeerCertificate;

use super::{
    Shared,
    caller::{self, Connection, Presented},
    listener::Listener,
    node_places::NodePlace,
    refusals::Refused,
};
use crate::{model::node::NodeState, service::node_trust::Worth};

/// What is known of a node is looked at so often; a revocation is announced, so that it is known at once.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Looks that may fail one after the other before the tunnel ends: nobody keeps one because nobody can say whether they may.
const MOST_FAILED: u32 = 3;
/// A node that renewed its certificate dials anew for new streams. Those that are open go on until they end; none is allowed
/// to last longer than this, and so no tunnel is open longer after its certificate has expired.
const LONGEST_STREAM: TimeDelta = TimeDelta::days(7);

/// Whether a node may have a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerStatus {
    Good,
    /// By a certificate that the node itself has replaced since it dialled, or that has expired: what is open may go on. Who
    /// dials with it is refused, for this reason.
    Draining(&'static str, Code),
    /// Refused, and recorded.
    Refused,
    /// It could not be looked at.
    Unknown,
}

impl Listener {
    /// Until the tunnel ends, the node loses its standing, or the process stops.
    pub(super) async fn tunnel(
        &self,
        stream: TlsStream<ReadAhead<TcpStream>>,
        connection: Arc<Connection>,
        class: TunnelClass,
        mut place: NodePlace,
    ) {
        let (Some(tunnels), Some(node), Some((profile, _))) =
            (&self.shared.tunnels, connection.node(), Profile::for_class(class))
        else {
            return;
        };
        let origin = self.shared.dial_origin(&connection);
        let mut last_live = None;
        match self.shared.peer_status(&connection, &mut last_live, &origin).await {
            PeerStatus::Good => {}
            PeerStatus::Draining(reason, code) => {
                self.shared.refused(&connection, (reason, code), &origin).await;
                return;
            }
            PeerStatus::Refused | PeerStatus::Unknown => return,
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
        let mut failed = 0;
        loop {
            tokio::select! {
                () = tunnel.ended() => return,
                () = self.stop.cancelled() => return,
                _ = check.tick() => {}
            }
            match self.shared.peer_status(&connection, &mut last_live, &origin).await {
                PeerStatus::Good => failed = 0,
                PeerStatus::Draining(..) => {
                    (registered, failed) = (None, 0);
                    place.drain();
                    if tunnel.open_streams() == 0 {
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

    /// Whoever dials without a certificate that proves a node.
    pub(super) async fn refuse_stranger(&self, connection: &Connection) {
        let now = self.shared.fleet.db().ambient().now();
        if let Err(refusal) = caller::certificate(connection, now) {
            let origin = self.shared.dial_origin(connection);
            self.shared.refused(connection, (refusal.reason, refusal.problem.code), &origin).await;
        }
    }
}

impl Shared {
    fn dial_origin(&self, connection: &Connection) -> Origin {
        Origin {
            correlation_id: CorrelationId(self.fleet.db().ambient().uuid()),
            source_ip: Some(connection.source.to_canonical().to_string()),
            traceparent: None,
        }
    }

    /// By the rules for requests of the node. `last_live` is the certificate of the node that counted when a tunnel that
    /// drains was looked at last.
    async fn peer_status(
        &self,
        connection: &Connection,
        last_live: &mut Option<String>,
        origin: &Origin,
    ) -> PeerStatus {
        let Presented::Node(certificate) = &connection.presented else { return PeerStatus::Refused };
        let (mut reason, mut code) = ("expired", Code::TokenExpired);
        if certificate.not_after > self.fleet.db().ambient().now() {
            let refusal = match Box::pin(self.trust(certificate, &contract::WAIT, origin)).await {
                Ok(Ok(_)) => return PeerStatus::Good,
                Ok(Err(refusal)) => refusal,
                Err(failure) => return unknown(&failure),
            };
            (reason, code) = (refusal.reason, refusal.problem.code);
            match Box::pin(self.note_copy(connection, &refusal, origin)).await {
                Ok(false) if refusal.is_replaced() => {}
                Ok(_) => return self.refused(connection, (reason, code), origin).await,
                Err(failure) => {
                    tracing::warn!(error = ?failure, "the use of a copied certificate could not be recorded");
                    return self.refused(connection, (reason, code), origin).await;
                }
            }
        }
        match self.may_drain(certificate, last_live).await {
            Ok(true) => PeerStatus::Draining(reason, code),
            Ok(false) => self.refused(connection, (reason, code), origin).await,
            Err(failure) => unknown(&failure),
        }
    }

    /// Whether what is open may go on by a certificate that a later one replaced, or that has expired: as long as nobody has
    /// taken back its authority, the node, or a certificate of the node since.
    async fn may_drain(
        &self,
        certificate: &PeerCertificate,
        last_live: &mut Option<String>,
    ) -> Result<bool, Failure> {
        if self.fleet.db().ambient().now() >= certificate.not_after + LONGEST_STREAM {
            return Ok(false);
        }
        let Some(trust) = self.fleet.node_trust.get(certificate.node_id).await? else { return Ok(false) };
        let Some(live) = &trust.live else { return Ok(false) };
        let serials = [Some(certificate.serial.as_str()), last_live.as_deref()];
        let is_revoked = serials.into_iter().flatten().any(|serial| trust.worth(serial) == Worth::Revoked);
        if is_revoked || matches!(trust.state, NodeState::Removing | NodeState::Deleted) {
            return Ok(false);
        }
        *last_live = Some(live.serial.clone());
        self.fleet.trust().believes(certificate.authority_id).await
    }

    async fn refused(
        &self,
        connection: &Connection,
        (reason, code): (&'static str, Code),
        origin: &Origin,
    ) -> PeerStatus {
        let refused = Refused {
            reason,
            action: "node.tunnel",
            node: connection.node(),
            target: ("node", connection.node().map(|node| node.to_string())),
            code,
            source: connection.source,
        };
        Box::pin(self.refusals.note(self.fleet.db(), refused, origin)).await;
        PeerStatus::Refused
    }
}

fn unknown(failure: &Failure) -> PeerStatus {
    tracing::warn!(error = ?failure, "whether a node may keep its tunnel could not be checked");
    PeerStatus::Unknown
}
