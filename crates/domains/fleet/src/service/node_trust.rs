//! Whether a node may speak: its state and its certificates, cached and dropped at once when they change.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{CorrelationId, Failure, ids::NodeId};
use pg::{Db, Origin, Permit};
use quick_cache::sync::Cache;

use crate::{model::node::NodeState, store};

const LIFETIME: TimeDelta = TimeDelta::seconds(10);
const NODES_KEPT: usize = 50_000;

/// What is known of a node that presents a certificate.
#[derive(Clone, Debug)]
pub struct NodeTrust {
    pub state: NodeState,
    /// Serial numbers, in lower-case hexadecimal, of certificates that somebody took back.
    pub revoked: Arc<[String]>,
    /// Those that a later one took the place of.
    pub superseded: Arc<[String]>,
    /// Those of them that may ask for the later one once more: nobody was heard with it, nor with any in between.
    pub renewing: Arc<[String]>,
    /// The one that counts.
    pub live: Option<Arc<LiveCertificate>>,
    pub simulated: bool,
}

/// The one certificate of a node that counts.
#[derive(Clone, Debug)]
pub struct LiveCertificate {
    pub serial: String,
    pub made_at: DateTime<Utc>,
    /// When the node was first heard with it.
    pub used_at: Option<DateTime<Utc>>,
    /// It is from before the end of a tenancy, and is to be renewed with a new key.
    pub rekey: bool,
}

/// What a certificate of a node is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    Live,
    /// Live, and seen for the first time.
    FirstUse,
    /// Not recorded: it was given after the state of the records, as after a restore.
    Unknown,
    /// Superseded by one that was never heard: good for asking for that one once more.
    Renewing,
    /// Superseded by one that was heard at this time, or by others after it.
    Superseded {
        since: DateTime<Utc>,
    },
    Revoked,
}

impl NodeTrust {
    /// What the certificate with this serial number, which has not expired, is worth.
    pub fn worth(&self, serial: &str) -> Worth {
        let is_in = |list: &[String]| list.iter().any(|known| known == serial);
        match self.live.as_deref() {
            Some(live) if live.serial == serial && live.used_at.is_none() => Worth::FirstUse,
            Some(live) if live.serial == serial => Worth::Live,
            _ if is_in(&self.revoked) => Worth::Revoked,
            _ if !is_in(&self.superseded) => Worth::Unknown,
            Some(_) if is_in(&self.renewing) => Worth::Renewing,
            Some(live) => Worth::Superseded { since: live.used_at.unwrap_or(live.made_at) },
            None => Worth::Revoked,
        }
    }

    /// Whether the node is to make a new key now, having shown this certificate.
    pub fn renew_now(&self, serial: &str) -> bool {
        self.live.as_ref().is_some_and(|live| live.rekey && live.serial == serial)
    }
}

struct Dated {
    at: DateTime<Utc>,
    trust: NodeTrust,
}

struct Inner {
    db: Db,
    known: Cache<NodeId, Arc<Dated>>,
    /// Counts invalidations, so that what was read before one is not kept after it.
    generation: AtomicU64,
}

/// Cheap to clone; all clones share one cache. Making one touches no database.
#[derive(Clone)]
pub struct NodeTrustCache(Arc<Inner>);

/// The key under which a node's trust is dropped everywhere.
pub fn invalidation_key(node: NodeId) -> String {
    format!("node:{}", node.uuid())
}

impl NodeTrustCache {
    pub fn new(db: &Db) -> Self {
        let inner =
            Arc::new(Inner { db: db.clone(), known: Cache::new(NODES_KEPT), generation: AtomicU64::new(0) });
        // Weak, because the database outlives what listens to it.
        let listener = Arc::downgrade(&inner);
        db.on_invalidate(move |key| {
            let Some(inner) = listener.upgrade() else { return };
            let node = key.strip_prefix("node:").map(uuid::Uuid::try_parse);
            if key != "*" && node.is_none() {
                return;
            }
            inner.generation.fetch_add(1, Ordering::SeqCst);
            match node {
                Some(Ok(id)) => drop(inner.known.remove(&NodeId::from(id))),
                _ => inner.known.clear(),
            }
        });
        Self(inner)
    }

    /// As it is now.
    pub async fn fresh(&self, node: NodeId) -> Result<Option<NodeTrust>, Failure> {
        self.0.known.remove(&node);
        self.get(node).await
    }

    /// At most ten seconds old, and never older than the last change that was announced.
    pub async fn get(&self, node: NodeId) -> Result<Option<NodeTrust>, Failure> {
        let inner = &self.0;
        let now = inner.db.ambient().now();
        if let Some(known) =
            inner.known.get(&node).filter(|known| known.at <= now && now < known.at + LIFETIME)
        {
            return Ok(Some(known.trust.clone()));
        }
        let generation = inner.generation.load(Ordering::SeqCst);
        let origin = Origin::internal(CorrelationId(inner.db.ambient().uuid()));
        let mut read = inner.db.read(&Permit::system("whether a node may speak", origin)).await?;
        let Some(row) = store::node_trust::get(read.conn(), node, now).await? else { return Ok(None) };
        let (used_at, rekey) = (row.live_used_at, row.rekey);
        let live = row.live_serial.zip(row.live_made_at);
        let live =
            live.map(|(serial, made_at)| Arc::new(LiveCertificate { serial, made_at, used_at, rekey }));
        let (revoked, superseded, renewing) =
            (row.revoked.into(), row.superseded.into(), row.renewing.into());
        let trust =
            NodeTrust { state: row.state, revoked, superseded, renewing, live, simulated: row.simulated };
        inner.known.insert(node, Arc::new(Dated { at: now, trust: trust.clone() }));
        if inner.generation.load(Ordering::SeqCst) != generation {
            // It changed while it was read; whoever asks next reads anew.
            inner.known.remove(&node);
        }
        Ok(Some(trust))
    }
}
