//! Regions.

use endpoint::{Created, Empty, Endpoint, In, Json, NoContent, ScopeKind, Write, delete, get, patch, post};
use kernel::{Code, Failure, Page, Permission, text::Name};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Given;
use crate::{
    Fleet,
    model::{page::KeyPageQuery, region::Region, text::RegionCode},
    service::regions::{region_create, region_delete, region_get, region_list, region_update},
};

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    const ALL: &str = "/api/v1/platform/regions";
    const ONE: &str = "/api/v1/platform/regions/{region}";
    vec![
        get(ALL, "region_list", "List regions")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), list),
        post(ALL, "region_create", "Create a region")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::AlreadyExists])
            .needs(Permission::FleetManage)
            .audited("region.create")
            .handle(fleet.clone(), create),
        get(ONE, "region_get", "Show a region")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), show),
        patch(ONE, "region_update", "Rename a region")
            .describe("The code cannot be changed: nodes and pools refer to it.")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::Conflict])
            .needs(Permission::FleetManage)
            .audited("region.update")
            .handle(fleet.clone(), update),
        delete(ONE, "region_delete", "Delete a region")
            .describe("Refused while nodes or pools refer to it.")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::InUse, Code::Conflict])
            .needs(Permission::FleetManage)
            .audited("region.delete")
            .handle(fleet.clone(), remove),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct RegionPath {
    region: RegionCode,
}

async fn list(
    _: Fleet,
    mut tx: ReadTx,
    input: In<Empty, KeyPageQuery, ()>,
) -> Result<Json<Page<Region>>, Failure> {
    Ok(Json(region_list(&mut tx, &input.query).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RegionCreate {
    code: RegionCode,
    name: Name,
}

async fn create(
    _: Fleet,
    mut tx: Write,
    input: In<Empty, Empty, Json<RegionCreate>>,
) -> Result<Created<Region>, Failure> {
    let body = input.body.0;
    Ok(Created(region_create(&mut tx, body.code, body.name).await?))
}

async fn show(_: Fleet, mut tx: ReadTx, input: In<RegionPath, Empty, ()>) -> Result<Json<Region>, Failure> {
    Ok(Json(region_get(&mut tx, &input.path.region).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RegionUpdate {
    #[serde(default)]
    name: Given<Name>,
}

async fn update(
    _: Fleet,
    mut tx: Write,
    input: In<RegionPath, Empty, Json<RegionUpdate>>,
) -> Result<Json<Region>, Failure> {
    Ok(Json(region_update(&mut tx, &input.path.region, input.body.0.name.0, input.if_match).await?))
}

async fn remove(_: Fleet, mut tx: Write, input: In<RegionPath, Empty, ()>) -> Result<NoContent, Failure> {
    region_delete(&mut tx, &input.path.region, input.if_match).await?;
    Ok(NoContent)
}
