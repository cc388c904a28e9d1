//! People, as the platform's operators see them.

use endpoint::{Empty, Endpoint, In, Json, ScopeKind, UserPath, Write, get, put};
use kernel::{Code, Failure, Page, PageQuery, Permission, text::Email};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Given;
use crate::{
    Identity,
    model::{person::PlatformUser, role::PlatformRole},
    service::people::{platform_roles_set, platform_user_list},
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/users", "platform_user_list", "List all users")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformRead)
            .handle(identity.clone(), list),
        put(
            "/api/v1/platform/users/{user_id}/roles",
            "platform_user_roles_set",
            "Set a user's platform roles",
        )
        .describe(
            "Replaces all platform roles. The platform keeps at least one administrator. Roles with the \
             permission to approve must be proposed (`platform_user_roles_propose`); they can be set \
             directly only for the second administrator of a new installation.",
        )
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::InvalidTransition])
        .needs(Permission::PlatformUserManage)
        .audited("platform_user.roles_set")
        .handle(identity.clone(), set_roles),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only users with this e-mail address.
    #[serde(default)]
    email: Given<Email>,
}

async fn list(
    _: Identity,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<PlatformUser>>, Failure> {
    let email = input.query.email.0.as_ref().map(Email::as_str);
    Ok(Json(platform_user_list(&mut tx, email, &input.query.page).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlatformRolesPut {
    /// All the platform roles the user is to hold; none, to take them away.
    #[schemars(length(max = 10))]
    roles: Vec<PlatformRole>,
}

async fn set_roles(
    _: Identity,
    mut tx: Write,
    input: In<UserPath, Empty, Json<PlatformRolesPut>>,
) -> Result<Json<PlatformUser>, Failure> {
    Ok(Json(platform_roles_set(&mut tx, input.path.user_id, input.body.0.roles).await?))
}
