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
pub mod owner_labels;
pub mod people;
pub mod policies;
pub mod policy_cache;
pub mod project_members;
pub mod projects;
pub mod recipients;
pub mod resource_names;
pub mod sensitive_changes;
pub mod service_accounts;
pub mod sessions;
pub mod ssh_keys;

use pg::{changed, created, found, removed};
