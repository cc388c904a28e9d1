//! Whether a node may speak: its state and its revoked certificates, cached and dropped at once when they change.

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
pub struct Standing {
    pub state: NodeState,
    /// Serial numbers, in lower-case hexadecimal, of certificates that no longer count.
    pub revoked: Arc<[String]>,
    pub simulated: bool,
}

impl Standing {
    pub fn is_revoked(&self, serial: &str) -> bool {
        self.revoked.iter().any(|revoked| revoked == serial)
    }
}

struct Dated {
    at: DateTime<Utc>,
    standing: Standing,
}

struct Inner {
    db: Db,
    known: Cache<NodeId, Arc<Dated>>,
    /// Counts invalidations, so that what was read before one is not kept after it.
    generation: AtomicU64,
}

/// Cheap to clone; all clones share one cache. Making one touches no database.
#[derive(Clone)]
pub struct Standings(Arc<Inner>);

/// The key under which a node's standing is dropped everywhere.
pub fn invalidation_key(node: NodeId) -> String {
    format!("node:{}", node.uuid())
}

impl Standings {
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

    /// At most ten seconds old, and never older than the last change that was announced.
    pub async fn of(&self, node: NodeId) -> Result<Option<Standing>, Failure> {
        let inner = &self.0;
        let now = inner.db.ambient().now();
        if let Some(known) =
            inner.known.get(&node).filter(|known| known.at <= now && now < known.at + LIFETIME)
        {
            return Ok(Some(known.standing.clone()));
        }
        let generation = inner.generation.load(Ordering::SeqCst);
        let origin = Origin::internal(CorrelationId(inner.db.ambient().uuid()));
        let mut read = inner.db.read(&Permit::system("whether a node may speak", origin)).await?;
        let Some(row) = store::standing::get(read.conn(), node, now).await? else { return Ok(None) };
        let Some(state) = NodeState::parse(&row.state) else { return Ok(None) };
        let standing = Standing { state, revoked: row.revoked.into(), simulated: row.simulated };
        inner.known.insert(node, Arc::new(Dated { at: now, standing: standing.clone() }));
        if inner.generation.load(Ordering::SeqCst) != generation {
            // It changed while it was read; whoever asks next reads anew.
            inner.known.remove(&node);
        }
        Ok(Some(standing))
    }
}
