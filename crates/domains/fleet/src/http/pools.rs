//! Pools of nodes.

use endpoint::{Created, Empty, Endpoint, In, Json, NoContent, ScopeKind, Write, delete, get, patch, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::PoolId,
    text::{Name, Term},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Given;
use crate::{
    Fleet,
    model::{pool::Pool, text::RegionCode},
    service::pools::{pool_create, pool_delete, pool_get, pool_list, pool_update},
};

pub fn endpoints(fleet: &Fleet) -> Vec<Endpoint> {
    const ALL: &str = "/api/v1/platform/pools";
    const ONE: &str = "/api/v1/platform/pools/{pool_id}";
    vec![
        get(ALL, "pool_list", "List pools of nodes")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), list),
        post(ALL, "pool_create", "Create a pool")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::AlreadyExists])
            .needs(Permission::FleetManage)
            .audited("pool.create")
            .handle(fleet.clone(), create),
        get(ONE, "pool_get", "Show a pool")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::FleetRead)
            .handle(fleet.clone(), show),
        patch(ONE, "pool_update", "Change a pool's name or description")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::AlreadyExists, Code::Conflict])
            .needs(Permission::FleetManage)
            .audited("pool.update")
            .handle(fleet.clone(), update),
        delete(ONE, "pool_delete", "Delete a pool")
            .describe("Refused while nodes are in it.")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::InUse, Code::Conflict])
            .needs(Permission::FleetManage)
            .audited("pool.delete")
            .handle(fleet.clone(), remove),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct PoolPath {
    pool_id: PoolId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only pools in this region.
    #[serde(default)]
    region: Given<RegionCode>,
}

async fn list(
    _: Fleet,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<Pool>>, Failure> {
    Ok(Json(pool_list(&mut tx, input.query.region.0.as_ref(), &input.query.page).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PoolCreate {
    region: RegionCode,
    name: Name,
    #[serde(default)]
    description: Given<Term>,
}

async fn create(
    _: Fleet,
    mut tx: Write,
    input: In<Empty, Empty, Json<PoolCreate>>,
) -> Result<Created<Pool>, Failure> {
    let body = input.body.0;
    Ok(Created(pool_create(&mut tx, body.region, body.name, body.description.0).await?))
}

async fn show(_: Fleet, mut tx: ReadTx, input: In<PoolPath, Empty, ()>) -> Result<Json<Pool>, Failure> {
    Ok(Json(pool_get(&mut tx, input.path.pool_id).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PoolUpdate {
    #[serde(default)]
    name: Given<Name>,
    #[serde(default)]
    description: Given<Term>,
}

async fn update(
    _: Fleet,
    mut tx: Write,
    input: In<PoolPath, Empty, Json<PoolUpdate>>,
) -> Result<Json<Pool>, Failure> {
    let body = input.body.0;
    let change = (body.name.0, body.description.0);
    Ok(Json(pool_update(&mut tx, input.path.pool_id, change, input.if_match).await?))
}

async fn remove(_: Fleet, mut tx: Write, input: In<PoolPath, Empty, ()>) -> Result<NoContent, Failure> {
    pool_delete(&mut tx, input.path.pool_id, input.if_match).await?;
    Ok(NoContent)
}
