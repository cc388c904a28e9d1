//! Gateways that need this node: dialled when the control plane says so, and served until the tunnel ends.

use std::{collections::HashSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use node_proto::{contract::Dial, grant::Grant};
use node_tunnel::{Attached, Handler, Profile, Refusal, serve};
use tokio::task::JoinSet;

use super::{Session, lock};
use crate::{
    executor::Executor,
    identity::Identity,
    journal::Journal,
    transport::{Address, Connect, DIAL_LIMIT, TransportError, connect_tls},
};

/// Tunnels at once: two of a few gateway replicas each.
const MOST_TUNNELS: usize = 16;
/// How long what is open may take to end when the agent stops.
const HANG_UP_WITHIN: Duration = Duration::from_secs(5);

/// What can be opened on a node.
#[async_trait]
pub trait Streams: Handler {
    /// Ends what is open for an owner, before the owner's things are removed.
    async fn end_owner(&self, owner: &str);
    /// Ends everything: the agent stops.
    async fn stop(&self);
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
    dialled: HashSet<(Dial, DateTime<Utc>)>,
    running: JoinSet<()>,
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
        while tunnels.running.try_join_next().is_some() {}
        if tunnels.dialled.len() >= MOST_TUNNELS || !tunnels.dialled.insert(dialled.clone()) {
            return false;
        }
        let this = self.clone();
        tunnels.running.spawn(async move {
            if let Err(error) = Box::pin(this.tunnel(&dial, &identity)).await {
                this.log.warn("tunnels", &format!("the gateway {} cannot be used: {error}", dial.url));
            }
            lock(&this.tunnels).dialled.remove(&dialled);
        });
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
