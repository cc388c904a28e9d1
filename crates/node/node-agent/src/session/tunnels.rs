//! Gateways that need this node: dialled when the control plane says so, and served until the tunnel ends.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use node_proto::{
    contract::{Dial, TerminalSessionReport},
    grant::Grant,
};
use node_tunnel::{Attached, Handler, Profile, Refusal, serve};
use tokio::task::{AbortHandle, JoinSet};

use super::{Session, lock};
use crate::{
    executor::Executor,
    identity::Identity,
    journal::Journal,
    transport::{Address, Connect, DIAL_LIMIT, TransportError, connect_tls},
};

/// Tunnels at once by the certificate in force: two of a few gateway replicas each.
const MOST_TUNNELS: usize = 16;
/// Tunnels of one kind to one gateway by certificates that were replaced, in which streams are still open. The oldest ends for a
/// new one: a gateway lets only so many connections of a node drain.
const MOST_DRAINING: usize = 15;
/// Tunnels in all, whichever gateways there were.
const MOST_IN_ALL: usize = 128;
/// How long what is open may take to end when the agent stops.
const HANG_UP_WITHIN: Duration = Duration::from_secs(5);

/// What can be opened on a node.
#[async_trait]
pub trait Streams: Handler {
    /// Ends what is open or being opened for an owner. Called before the owner's things are removed, and again after.
    async fn end_owner(&self, owner: &str);
    /// Ends everything: the agent stops.
    async fn stop(&self);
    /// What the node reports of its terminals. Nothing where there are none.
    fn terminal_sessions(&self) -> Vec<TerminalSessionReport> {
        Vec::new()
    }
}

/// Where nothing can be opened.
pub struct NoStreams;

#[async_trait]
impl Handler for NoStreams {
    async fn attach(&self, _: Grant) -> Result<Box<dyn Attached>, Refusal> {
        Err(Refusal("not_supported"))
    }
}

#[async_trait]
impl Streams for NoStreams {
    async fn end_owner(&self, _: &str) {}
    async fn stop(&self) {}
}

/// They end with the session.
#[derive(Default)]
pub(super) struct Tunnels {
    /// By which certificate, told by its expiry: a gateway takes no new streams on a tunnel whose certificate was replaced, and
    /// is dialled once more while the old ones end.
    dialled: HashMap<(Dial, DateTime<Utc>), AbortHandle>,
    running: JoinSet<()>,
}

impl Tunnels {
    /// Whether one more may be dialled by the certificate that expires then. Makes room for it.
    fn make_room(&mut self, dial: &Dial, expires_at: DateTime<Utc>) -> bool {
        while self.running.try_join_next().is_some() {}
        let by_this = self.dialled.keys().filter(|(_, expiry)| *expiry == expires_at).count();
        if by_this >= MOST_TUNNELS || self.dialled.contains_key(&(dial.clone(), expires_at)) {
            return false;
        }
        let mut before: Vec<_> =
            self.dialled.keys().filter(|(_, expiry)| *expiry != expires_at).cloned().collect();
        before.sort_by_key(|(_, expiry)| *expiry);
        let to_same = before.iter().filter(|(other, _)| other == dial).count();
        let mut too_many = to_same.saturating_sub(MOST_DRAINING);
        for oldest in &before {
            let ends_for_same = too_many > 0 && oldest.0 == *dial;
            if ends_for_same || self.dialled.len() >= MOST_IN_ALL {
                too_many = too_many.saturating_sub(usize::from(ends_for_same));
                self.end(oldest);
            }
        }
        true
    }

    fn end(&mut self, dialled: &(Dial, DateTime<Utc>)) {
        if let Some(running) = self.dialled.remove(dialled) {
            running.abort();
        }
    }
}

pub(super) struct TunnelsEnd<C, J, E>(Arc<Session<C, J, E>>);

impl<C, J, E> Drop for TunnelsEnd<C, J, E> {
    fn drop(&mut self) {
        lock(&self.0.tunnels).running.abort_all();
    }
}

/// Streams of one session; it asks for the signers in force when one is not known.
struct Believing<C, J, E>(Arc<Session<C, J, E>>);

#[async_trait]
impl<C: Connect, J: Journal, E: Executor> Handler for Believing<C, J, E> {
    async fn attach(&self, grant: Grant) -> Result<Box<dyn Attached>, Refusal> {
        self.0.streams.attach(grant).await
    }

    async fn refresh_signers(&self) -> bool {
        self.0.refresh_trust().await
    }
}

impl<C: Connect, J: Journal, E: Executor> Session<C, J, E> {
    /// False when there is such a tunnel, or too many.
    pub(super) fn dial(self: &Arc<Self>, dial: Dial) -> bool {
        let identity = self.identity();
        let dialled = (dial.clone(), identity.expires_at());
        let mut tunnels = lock(&self.tunnels);
        if !tunnels.make_room(&dial, identity.expires_at()) {
            return false;
        }
        let (this, key) = (self.clone(), dialled.clone());
        let running = tunnels.running.spawn(async move {
            if let Err(error) = Box::pin(this.tunnel(&dial, &identity)).await {
                this.log.warn("tunnels", &format!("the gateway {} cannot be used: {error}", dial.url));
            }
            lock(&this.tunnels).dialled.remove(&dialled);
        });
        // The lock is held: a tunnel that has ended already is removed after this.
        tunnels.dialled.insert(key, running);
        true
    }

    async fn tunnel(self: &Arc<Self>, dial: &Dial, identity: &Identity) -> Result<(), TransportError> {
        let address = Address::parse(&dial.url)?;
        let no_tunnel = || TransportError::NoTunnel(address.authority());
        let (profile, alpn) = Profile::for_class(dial.class).ok_or_else(no_tunnel)?;
        let tls = identity.tls(&self.ambient);
        let mut tls = (*tls.map_err(|error| TransportError::Broken(error.to_string()))?).clone();
        tls.alpn_protocols = vec![alpn.to_vec()];
        let connecting = connect_tls(&*self.connect, &address, Arc::new(tls));
        let connected = tokio::time::timeout(DIAL_LIMIT, connecting).await;
        let stream = connected
            .map_err(|_| TransportError::Timeout { what: "connecting", seconds: DIAL_LIMIT.as_secs() })??;
        if stream.get_ref().1.alpn_protocol() != Some(alpn) {
            return Err(no_tunnel());
        }
        self.log.info("tunnels", &format!("connected to the gateway {}", dial.url));
        let handler = Arc::new(Believing(self.clone()));
        // A tunnel that breaks is dialled again when somebody needs it.
        let _ = serve(stream, profile, self.gate.clone(), handler).await;
        Ok(())
    }

    /// Tunnels hold the session: whatever ends its run ends them first.
    pub(super) fn tunnels_end_with_this(self: &Arc<Self>) -> TunnelsEnd<C, J, E> {
        TunnelsEnd(self.clone())
    }

    /// Ends what is open, then the tunnels.
    pub(super) async fn hang_up(&self) {
        let _ = tokio::time::timeout(HANG_UP_WITHIN, self.streams.stop()).await;
        let mut running = std::mem::take(&mut lock(&self.tunnels).running);
        running.abort_all();
        while running.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use node_proto::contract::TunnelClass;

    use super::*;

    fn to(gateway: &str) -> Dial {
        Dial { url: format!("https://{gateway}:8082"), class: TunnelClass::Bulk }
    }

    /// As [`Session::dial`], by the certificate of this number.
    fn dial(tunnels: &mut Tunnels, gateway: &str, certificate: i64) -> bool {
        let expires_at = DateTime::UNIX_EPOCH + TimeDelta::hours(certificate);
        if !tunnels.make_room(&to(gateway), expires_at) {
            return false;
        }
        let running = tunnels.running.spawn(std::future::pending());
        tunnels.dialled.insert((to(gateway), expires_at), running);
        true
    }

    fn certificates(tunnels: &Tunnels, gateway: &str) -> Vec<i64> {
        let hours = |expiry: &DateTime<Utc>| (*expiry - DateTime::UNIX_EPOCH).num_hours();
        let to = to(gateway);
        let mut found: Vec<i64> =
            tunnels.dialled.keys().filter(|(dial, _)| *dial == to).map(|(_, expiry)| hours(expiry)).collect();
        found.sort_unstable();
        found
    }

    #[tokio::test]
    async fn tunnels_of_replaced_certificates_live_on_and_do_not_keep_new_ones_out() {
        let mut tunnels = Tunnels::default();
        for gateway in 0..MOST_TUNNELS {
            assert!(dial(&mut tunnels, &gateway.to_string(), 1));
        }
        assert!(!dial(&mut tunnels, "0", 1), "there is such a tunnel");
        assert!(!dial(&mut tunnels, "x", 1), "there are too many by this certificate");
        for certificate in 2..=20 {
            assert!(dial(&mut tunnels, "0", certificate), "by a new certificate");
        }
        assert_eq!(certificates(&tunnels, "0"), (5..=20).collect::<Vec<_>>(), "the oldest have ended");
        assert_eq!(certificates(&tunnels, "1"), [1], "others are open still");
        for certificate in 21..300 {
            assert!(dial(&mut tunnels, &format!("g{certificate}"), certificate));
            assert!(tunnels.dialled.len() <= MOST_IN_ALL);
        }
        assert_eq!(certificates(&tunnels, "1"), [0; 0], "and the oldest of all have ended");
    }
}
