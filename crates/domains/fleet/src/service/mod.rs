//! Use cases: load, decide, write, emit.
//!
//! Every function that changes something takes the open write transaction and leaves in it the rows, the audit
//! target, the events and the cache invalidations; the caller commits. A node's standing is dropped by the key
//! `node:` with its UUID.

pub mod agent_tasks;
pub mod certificates;
pub mod completion;
pub mod contacts;
pub mod dispatch;
pub mod enrollment;
pub mod findings;
pub mod health_rules;
pub mod history;
pub mod logs;
pub mod nodes;
pub mod onboarding;
pub mod pools;
pub mod regions;
pub mod slots;
pub mod standing;
pub mod task_views;
pub mod tasks;
pub mod tokens;
pub mod topologies;
pub mod validations;

use kernel::{CorrelationId, Failure, Problem};
use pg::{Db, Origin, Permit, WriteTx};
use serde::Serialize;

fn created<A: Serialize>(
    tx: &mut WriteTx,
    kind: &'static str,
    id: impl ToString,
    after: &A,
) -> Result<(), Failure> {
    Ok(tx.record(kind, id, None::<&()>, Some(after))?)
}

fn changed<T: Serialize>(
    tx: &mut WriteTx,
    kind: &'static str,
    id: impl ToString,
    before: &T,
    after: &T,
) -> Result<(), Failure> {
    Ok(tx.record(kind, id, Some(before), Some(after))?)
}

fn removed<B: Serialize>(
    tx: &mut WriteTx,
    kind: &'static str,
    id: impl ToString,
    before: &B,
) -> Result<(), Failure> {
    Ok(tx.record(kind, id, Some(before), None::<&()>)?)
}

fn found<T>(row: Option<T>, kind: &'static str) -> Result<T, Problem> {
    row.ok_or_else(|| Problem::not_found(kind))
}

/// The product itself acts, for a stated reason and outside any request.
pub(crate) fn by_itself(db: &Db, reason: &'static str) -> Permit {
    Permit::system(reason, Origin::internal(CorrelationId(db.ambient().uuid())))
}
