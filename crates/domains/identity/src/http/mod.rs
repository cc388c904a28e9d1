//! Endpoints, one file per resource. A handler reads its typed input, calls one use case, and returns.

mod audit;
mod auth;
mod invitations;
mod me;
mod members;
mod orgs;
mod platform_orgs;
mod platform_users;
mod policies;
mod project_members;
mod projects;
mod sensitive_changes;
mod service_account_keys;
mod service_accounts;
mod sessions;
mod ssh_keys;

use endpoint::{Access, Caller, Endpoint, Given};
use kernel::{
    Code, Problem,
    ids::{InvitationId, OrgId, ProjectId, ServiceAccountId, UserId},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::Identity;

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    [
        auth::endpoints,
        me::endpoints,
        sessions::endpoints,
        ssh_keys::endpoints,
        orgs::endpoints,
        members::endpoints,
        invitations::endpoints,
        projects::endpoints,
        project_members::endpoints,
        service_accounts::endpoints,
        service_account_keys::endpoints,
        policies::endpoints,
        audit::endpoints,
        platform_orgs::endpoints,
        platform_users::endpoints,
        sensitive_changes::endpoints,
    ]
    .into_iter()
    .flat_map(|of_resource| of_resource(identity))
    .collect()
}

/// The session behind the caller's token.
fn session(access: &Access) -> Result<kernel::ids::SessionId, Problem> {
    match access.caller() {
        Some(Caller::User { session, .. }) => Ok(*session),
        _ => Err(Problem::new(
            Code::InsufficientPermissions,
            "Only a user can do this, not a service account.",
        )),
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct MemberPath {
    org_id: OrgId,
    user_id: UserId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct InvitationPath {
    org_id: OrgId,
    invitation_id: InvitationId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ServiceAccountPath {
    project_id: ProjectId,
    service_account_id: ServiceAccountId,
}
