//! `/platform/discrepancies`: where records disagree.

use endpoint::{Empty, Endpoint, Given, In, Json, ScopeKind, get};
use kernel::{Failure, Page, PageQuery, Permission, ids::DiscrepancyId};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Capacity,
    model::discrepancy::{Discrepancy, DiscrepancyKind, DiscrepancyState},
    service::discrepancies::{discrepancy_get, discrepancy_list},
};

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/discrepancies", "discrepancy_list", "List capacity discrepancies")
            .describe("Found by a job that compares claims, allocations, workflows, tasks and nodes. Nothing is repaired automatically.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::CapacityRead)
            .handle(capacity.clone(), list),
        get("/api/v1/platform/discrepancies/{discrepancy_id}", "discrepancy_get", "Show a capacity discrepancy")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::CapacityRead)
            .handle(capacity.clone(), show),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct DiscrepancyPath {
    discrepancy_id: DiscrepancyId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only those of this kind.
    #[serde(default)]
    kind: Given<DiscrepancyKind>,
    /// Only those that are open, or only those that are resolved.
    #[serde(default)]
    state: Given<DiscrepancyState>,
}

async fn list(
    _: Capacity,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<Discrepancy>>, Failure> {
    let query = input.query;
    Ok(Json(discrepancy_list(&mut tx, query.kind.0, query.state.0, &query.page).await?))
}

async fn show(
    _: Capacity,
    mut tx: ReadTx,
    input: In<DiscrepancyPath, Empty, ()>,
) -> Result<Json<Discrepancy>, Failure> {
    Ok(Json(discrepancy_get(&mut tx, input.path.discrepancy_id).await?))
}
