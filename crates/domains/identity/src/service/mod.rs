//! Use cases: load, decide with the model, write, tell.
//!
//! Every function that changes something takes the open write transaction and leaves in it the rows, the
//! audit target, the events and the cache invalidations; the caller commits. Keys of invalidations are
//! `user:`, `session:`, `org:`, `project:`, `invitation:`, `sa:` and `sak:` with the UUID, and `policy`.

pub mod audit;
pub mod invitations;
pub mod me;
pub mod members;
pub mod orgs;
pub mod people;
pub mod policies;
pub mod policy_cache;
pub mod project_members;
pub mod projects;
pub mod service_accounts;
pub mod sessions;
pub mod ssh_keys;

use kernel::{Failure, Problem};
use pg::WriteTx;
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
