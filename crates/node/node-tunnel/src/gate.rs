//! What a node checks before it opens a stream.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use chrono::{DateTime, Utc};
use kernel::{
    Ambient,
    ids::{GrantId, NodeId},
};
use node_proto::{
    Keyset,
    grant::{Grant, GrantError, SignedGrant},
    task::CLOCK_TOLERANCE,
};

/// Used grants that are remembered until they expire. Whoever signs gives a person ten a minute.
const MOST_USED: usize = 100_000;

/// The signers in force, as the agent has them now.
pub type Signers = dyn Fn() -> Arc<Keyset> + Send + Sync;
/// When this agent started, by the clock of the control plane.
pub type StartedAt = dyn Fn() -> DateTime<Utc> + Send + Sync;

/// Verifies grants for one node, and remembers those that are worth one stream. It forgets when the agent stops: what was
/// issued before it started is refused, because it may have been used. Both times are the control plane's: the clock of a node
/// may be wrong, and may be set right after the agent has started.
pub struct Gate {
    node: NodeId,
    signers: Box<Signers>,
    ambient: Ambient,
    started_at: Box<StartedAt>,
    used: Mutex<HashMap<GrantId, DateTime<Utc>>>,
}

impl Gate {
    pub fn new(node: NodeId, ambient: Ambient, signers: Box<Signers>, started_at: Box<StartedAt>) -> Self {
        Self { node, signers, started_at, ambient, used: Mutex::default() }
    }

    /// The grant, which is used from now on if it is worth one stream.
    pub fn admit(&self, signed: &SignedGrant) -> Result<Grant, GrantError> {
        let now = self.ambient.now();
        let grant = signed.accept(&(self.signers)(), self.node, now)?;
        if !grant.single_use {
            return Ok(grant);
        }
        if grant.issued_at < (self.started_at)() {
            return Err(GrantError::Superseded);
        }
        let mut used = self.used.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if used.contains_key(&grant.grant_id) {
            return Err(GrantError::Replayed);
        }
        if used.len() >= MOST_USED {
            used.retain(|_, expires_at| *expires_at + CLOCK_TOLERANCE > now);
            if used.len() >= MOST_USED {
                return Err(GrantError::TooMany);
            }
        }
        used.insert(grant.grant_id, grant.expires_at);
        Ok(grant)
    }
}
