//! Organizations, as their members see them.

use endpoint::{Empty, Endpoint, In, Json, OrgPath, ScopeKind, Write, get, patch};
use kernel::{Code, Failure, Page, PageQuery, Permission, text::Name};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Given;
use crate::{
    Identity,
    model::org::{Org, OrgDetails, OrgMembership},
    service::orgs::{org_get_details, org_list_of, org_update},
};

pub fn endpoints(identity: &Identity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/orgs", "org_list", "List your organizations")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SelfRead)
            .handle(identity.clone(), list),
        get("/api/v1/orgs/{org_id}", "org_get", "Show an organization")
            .in_scope(ScopeKind::Org)
            .needs(Permission::OrgRead)
            .handle(identity.clone(), show),
        patch("/api/v1/orgs/{org_id}", "org_update", "Rename an organization")
            .in_scope(ScopeKind::Org)
            .errors(&[Code::Conflict])
            .needs(Permission::OrgUpdate)
            .audited("org.update")
            .handle(identity.clone(), update),
    ]
}

async fn list(
    _: Identity,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<OrgMembership>>, Failure> {
    Ok(Json(org_list_of(&mut tx, input.access.user()?, &input.query).await?))
}

async fn show(
    _: Identity,
    mut tx: ReadTx,
    input: In<OrgPath, Empty, ()>,
) -> Result<Json<OrgDetails>, Failure> {
    Ok(Json(org_get_details(&mut tx, input.path.org_id).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OrgUpdate {
    #[serde(default)]
    name: Given<Name>,
}

async fn update(
    _: Identity,
    mut tx: Write,
    input: In<OrgPath, Empty, Json<OrgUpdate>>,
) -> Result<Json<Org>, Failure> {
    Ok(Json(org_update(&mut tx, input.path.org_id, input.body.0.name.0, input.if_match).await?))
}
