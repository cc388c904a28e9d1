//! SQL of identity: the only writer of its tables.
//!
//! Every function takes a connection that carries a scope. Row-level security confines it to the tenant;
//! the statements name the organization, project or person all the same.

pub mod audit;
pub mod invitations;
pub mod members;
pub mod orgs;
pub mod owner_labels;
pub mod people;
pub mod policies;
pub mod project_members;
pub mod projects;
pub mod recipients;
pub mod resource_names;
pub mod sensitive_changes;
pub mod service_account_keys;
pub mod service_accounts;
pub mod sessions;
pub mod ssh_keys;

use kernel::{Failure, Problem};

use crate::model::{
    invitation::InvitationState,
    org::{OrgKind, OrgState},
    sensitive_change::{SensitiveChangeKind, SensitiveChangeState},
    service_account::ServiceAccountRole,
};

pg::named_columns! {
    InvitationState, OrgKind, OrgState, SensitiveChangeKind, SensitiveChangeState, ServiceAccountRole,
}

/// What to say when a constraint is violated.
type Meaning<'a> = (&'a str, fn() -> Problem);

/// Turns a violated constraint into what the client may know of it; anything else stays internal.
fn violated(error: sqlx::Error, known: &[Meaning<'_>]) -> Failure {
    let name = pg::constraint_violated(&error).unwrap_or_default();
    match known.iter().find(|(constraint, _)| *constraint == name) {
        Some((_, problem)) => problem().into(),
        None => error.into(),
    }
}
