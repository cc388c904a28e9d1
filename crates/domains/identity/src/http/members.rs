//! Members of an organization.

use endpoint::{Empty, Endpoint, In, Json, NoContent, OrgPath, ScopeKind, Write, delete, get, patch};
use kernel::{Code, Failure, Page, PageQuery, Permission};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Given, MemberPath};
use crate::{
    Identity,
    model::{membership::Member, role::MemberRole},
    service::members::{member_delete, member_get, member_list, member_update},
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/orgs/{org_id}/members", "member_list", "List the members of an organization")
            .in_scope(ScopeKind::Org)
            .needs(Permission::MemberRead)
            .handle(identity.clone(), list),
        get("/api/v1/orgs/{org_id}/members/{user_id}", "member_get", "Show a member")
            .in_scope(ScopeKind::Org)
            .needs(Permission::MemberRead)
            .handle(identity.clone(), show),
        patch("/api/v1/orgs/{org_id}/members/{user_id}", "member_update", "Change a member's role")
            .describe(
                "A caller cannot grant or revoke a role above their own, and an organization keeps at least one owner.",
            )
            .in_scope(ScopeKind::Org)
            .errors(&[Code::OwnershipRequired, Code::InvalidTransition, Code::Conflict])
            .needs(Permission::MemberManage)
            .audited("member.update")
            .handle(identity.clone(), update),
        delete("/api/v1/orgs/{org_id}/members/{user_id}", "member_delete", "Remove a member")
            .describe("They lose their roles in the organization's projects too.")
            .in_scope(ScopeKind::Org)
            .errors(&[Code::OwnershipRequired, Code::InvalidTransition, Code::Conflict])
            .needs(Permission::MemberManage)
            .audited("member.delete")
            .handle(identity.clone(), remove),
    ]
}

async fn list(
    _: Identity,
    mut tx: ReadTx,
    input: In<OrgPath, PageQuery, ()>,
) -> Result<Json<Page<Member>>, Failure> {
    Ok(Json(member_list(&mut tx, input.path.org_id, &input.query).await?))
}

async fn show(
    _: Identity,
    mut tx: ReadTx,
    input: In<MemberPath, Empty, ()>,
) -> Result<Json<Member>, Failure> {
    Ok(Json(member_get(&mut tx, input.path.org_id, input.path.user_id).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MemberUpdate {
    #[serde(default)]
    role: Given<MemberRole>,
}

async fn update(
    _: Identity,
    mut tx: Write,
    input: In<MemberPath, Empty, Json<MemberUpdate>>,
) -> Result<Json<Member>, Failure> {
    let (path, role) = (input.path, input.body.0.role.0);
    let roles = input.access.roles();
    Ok(Json(member_update(&mut tx, path.org_id, path.user_id, role, input.if_match, roles).await?))
}

async fn remove(_: Identity, mut tx: Write, input: In<MemberPath, Empty, ()>) -> Result<NoContent, Failure> {
    let roles = input.access.roles();
    member_delete(&mut tx, input.path.org_id, input.path.user_id, input.if_match, roles).await?;
    Ok(NoContent)
}
