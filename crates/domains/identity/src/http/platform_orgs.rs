//! Organizations, as the platform's operators see them. What they do to one stands in its own audit trail.

use endpoint::{Created, Empty, Endpoint, In, Json, OrgPath, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::UserId,
    text::{Name, Reason, Slug},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Given;
use crate::{
    Identity,
    model::org::Org,
    service::orgs::{org_create, org_list, org_resume, org_suspend},
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/orgs", "platform_org_list", "List all organizations")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformRead)
            .handle(identity.clone(), list),
        post("/api/v1/platform/orgs", "platform_org_create", "Create an enterprise organization")
            .describe(
                "Created with a project `default`. The owner of both is `owner_user_id`, or the caller.",
            )
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::AlreadyExists])
            .needs(Permission::PlatformOrgManage)
            .audited("org.create")
            .handle(identity.clone(), create),
        post("/api/v1/platform/orgs/{org_id}/suspend", "platform_org_suspend", "Suspend an organization")
            .describe("It is read-only until it is resumed.")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::InvalidTransition])
            .needs(Permission::PlatformOrgManage)
            .audited("org.suspend")
            .handle(identity.clone(), suspend),
        post("/api/v1/platform/orgs/{org_id}/resume", "platform_org_resume", "Resume an organization")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::InvalidTransition])
            .needs(Permission::PlatformOrgManage)
            .audited("org.resume")
            .handle(identity.clone(), resume),
    ]
}

async fn list(
    _: Identity,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<Org>>, Failure> {
    Ok(Json(org_list(&mut tx, &input.query).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OrgCreate {
    name: Name,
    slug: Slug,
    /// The first owner; you, when absent.
    #[serde(default)]
    owner_user_id: Given<UserId>,
}

async fn create(
    _: Identity,
    mut tx: Write,
    input: In<Empty, Empty, Json<OrgCreate>>,
) -> Result<Created<Org>, Failure> {
    let body = input.body.0;
    let owner = match body.owner_user_id.0 {
        Some(owner) => owner,
        None => input.access.user()?,
    };
    Ok(Created(org_create(&mut tx, body.name, body.slug, owner).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OrgSuspend {
    /// The organization's members can read it.
    reason: Reason,
}

async fn suspend(
    _: Identity,
    mut tx: Write,
    input: In<OrgPath, Empty, Json<OrgSuspend>>,
) -> Result<Json<Org>, Failure> {
    Ok(Json(org_suspend(&mut tx, input.path.org_id, input.body.0.reason).await?))
}

async fn resume(_: Identity, mut tx: Write, input: In<OrgPath, Empty, ()>) -> Result<Json<Org>, Failure> {
    Ok(Json(org_resume(&mut tx, input.path.org_id).await?))
}
