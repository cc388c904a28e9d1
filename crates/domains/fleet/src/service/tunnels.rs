//! Tunnels to nodes, as the gateways of this process use them.
//!
//! A node that nobody needs has no tunnel. Whoever needs one notifies: the node listener that has the node's long poll, in this
//! process or another, ends it with a [`Dial`], and the agent dials the node listener of this process. One asks for a node at a
//! time, again and again until the node is there or its time is up: a notification can be lost.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use kernel::{Failure, ids::NodeId};
use node_proto::{
    contract::{Dial, TunnelClass},
    grant::SignedGrant,
};
use node_tunnel::{OpenError, Stream, Tunnel};
use pg::Db;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

pub use crate::store::dial::CHANNEL as DIAL_CHANNEL;
use crate::{model::contract_version::ContractVersion, store};

/// How long a node may take to dial.
const DIAL_WITHIN: Duration = Duration::from_secs(10);
/// After this time the node is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

type Key = (NodeId, TunnelClass);

/// Why a node cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error("the node did not connect within {} s", DIAL_WITHIN.as_secs())]
    NotConnected,
    #[error(transparent)]
    Open(OpenError),
    #[error("the node could not be asked to connect")]
    NotAsked,
    #[error(
        "the agent of the node is too old to connect: it speaks version {version} of the node contract, and {} is needed. \
         Update the agent of the node",
        ContractVersion::FIRST_WITH_DIAL
    )]
    TooOld { version: ContractVersion },
}

/// What is told to the process that has the node's long poll.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DialNotice {
    pub node: NodeId,
    pub dial: Dial,
}

struct Live {
    number: u64,
    tunnel: Arc<Tunnel>,
}

#[derive(Default)]
struct State {
    live: HashMap<Key, Live>,
    /// Nodes that somebody asks for now.
    asked: HashSet<Key>,
    next: u64,
}

struct Inner {
    db: Db,
    url: String,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

/// The tunnels of this process. Cheap to clone.
#[derive(Clone)]
pub struct Tunnels(Arc<Inner>);

impl std::fmt::Debug for Tunnels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tunnels").field("url", &self.0.url).finish_non_exhaustive()
    }
}

/// A tunnel that can be used until this is dropped.
pub(crate) struct Registered {
    tunnels: Tunnels,
    key: Key,
    number: u64,
}

/// One asks for a node.
struct Asking<'a> {
    tunnels: &'a Tunnels,
    key: Key,
}

impl Tunnels {
    /// `url`: `https://host:port` of the node listener of this process, as nodes reach it.
    pub fn new(db: Db, url: String) -> Self {
        Self(Arc::new(Inner { db, url, state: Mutex::default(), changes: watch::Sender::new(0) }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Opens a stream, through a tunnel that is there or that the node is asked for.
    pub async fn open(
        &self,
        node: NodeId,
        class: TunnelClass,
        grant: &SignedGrant,
    ) -> Result<Stream, ReachError> {
        let deadline = Instant::now() + DIAL_WITHIN;
        let tunnel = self.tunnel((node, class), deadline).await?;
        match tunnel.open(grant).await {
            // The tunnel ended before the node has seen the grant, as far as anybody knows. A stream that was reset on a tunnel
            // that goes on is not tried again: the node has it, and would not dial a second time.
            Err(OpenError::Broken(error)) => {
                if !tunnel.ends_soon().await {
                    return Err(ReachError::Open(OpenError::Broken(error)));
                }
                self.forget((node, class), &tunnel);
                let tunnel = self.tunnel((node, class), deadline).await?;
                tunnel.open(grant).await.map_err(ReachError::Open)
            }
            other => other.map_err(ReachError::Open),
        }
    }

    /// Nodes that are connected now.
    pub fn connected(&self) -> usize {
        self.lock().live.len()
    }

    async fn tunnel(&self, key: Key, deadline: Instant) -> Result<Arc<Tunnel>, ReachError> {
        let mut changes = self.0.changes.subscribe();
        let mut is_version_checked = false;
        loop {
            changes.borrow_and_update();
            if let Some(live) = self.lock().live.get(&key) {
                return Ok(live.tunnel.clone());
            }
            if Instant::now() >= deadline {
                return Err(ReachError::NotConnected);
            }
            if !std::mem::replace(&mut is_version_checked, true) {
                self.refuse_too_old(key.0).await?;
            }
            let asking = Asking::begin(self, key);
            if asking.is_some() && self.ask(key).await.is_err() {
                return Err(ReachError::NotAsked);
            }
            let again = deadline.min(Instant::now() + ASK_AGAIN);
            // Others change too; only time ends a request.
            let there = async {
                while !self.lock().live.contains_key(&key) {
                    if changes.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            };
            let _ = tokio::time::timeout_at(again, there).await;
        }
    }

    /// A node whose agent does not know of dials is not waited for. What it speaks stands in its last heartbeat; when that cannot
    /// be read, it is asked all the same.
    async fn refuse_too_old(&self, node: NodeId) -> Result<(), ReachError> {
        let found = async {
            let mut upkeep = self.0.db.upkeep("whether a node can be asked to connect").await?;
            Ok::<_, Failure>(store::nodes::contact(upkeep.conn(), node).await?)
        };
        let contract = match found.await {
            Ok(contact) => contact.map(|contact| contact.contract),
            Err(failure) => {
                tracing::debug!(node_id = %node, error = ?failure, "it could not be read what a node speaks");
                None
            }
        };
        match contract.as_deref().and_then(ContractVersion::parse) {
            Some(version) if !version.dials() => Err(ReachError::TooOld { version }),
            _ => Ok(()),
        }
    }

    async fn ask(&self, (node, class): Key) -> Result<(), Failure> {
        let dial = Dial { url: self.0.url.clone(), class };
        let notice = serde_json::to_string(&DialNotice { node, dial })?;
        let mut upkeep = self.0.db.upkeep("a node is asked to connect").await?;
        Ok(store::dial::notify(upkeep.conn(), &notice).await?)
    }

    /// The last one that a node has dialled is used.
    pub(crate) fn register(&self, node: NodeId, class: TunnelClass, tunnel: Arc<Tunnel>) -> Registered {
        let (key, number) = ((node, class), {
            let mut state = self.lock();
            state.next += 1;
            let number = state.next;
            state.live.insert((node, class), Live { number, tunnel });
            number
        });
        self.changed();
        Registered { tunnels: self.clone(), key, number }
    }

    fn forget(&self, key: Key, broken: &Arc<Tunnel>) {
        let mut state = self.lock();
        if state.live.get(&key).is_some_and(|live| Arc::ptr_eq(&live.tunnel, broken)) {
            state.live.remove(&key);
        }
    }

    fn changed(&self) {
        self.0.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut state = self.tunnels.lock();
        if state.live.get(&self.key).is_some_and(|live| live.number == self.number) {
            state.live.remove(&self.key);
        }
    }
}

impl<'a> Asking<'a> {
    /// Nothing when somebody else asks.
    fn begin(tunnels: &'a Tunnels, key: Key) -> Option<Self> {
        let is_first = tunnels.lock().asked.insert(key);
        // Made after the lock was given back, and only if it is needed: its end takes the lock.
        is_first.then(|| Self { tunnels, key })
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.tunnels.lock().asked.remove(&self.key);
    }
}
