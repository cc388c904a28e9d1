//! `/platform/billing/findings`: where books and world disagree.

use endpoint::{Empty, Endpoint, Given, In, Json, ScopeKind, get};
use kernel::{Failure, Page, PageQuery, Permission, ids::BillingFindingId};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Billing,
    model::finding::{BillingFinding, BillingFindingKind, BillingFindingState},
    service::reconcile::{billing_finding_get, billing_finding_list},
};

pub fn endpoints(billing: &Billing) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/billing/findings", "billing_finding_list", "List billing findings")
            .describe("Discrepancies found by jobs that compare meters, usage, ledger, allocations and the payment provider. Nothing is repaired automatically.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::MoneyRead)
            .handle(billing.clone(), list),
        get("/api/v1/platform/billing/findings/{finding_id}", "billing_finding_get", "Show a billing finding")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::MoneyRead)
            .handle(billing.clone(), show),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct FindingPath {
    finding_id: BillingFindingId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only those of this kind.
    #[serde(default)]
    kind: Given<BillingFindingKind>,
    /// Only those that are open, or only those that are resolved.
    #[serde(default)]
    state: Given<BillingFindingState>,
}

async fn list(
    _: Billing,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<BillingFinding>>, Failure> {
    let query = input.query;
    Ok(Json(billing_finding_list(&mut tx, query.kind.0, query.state.0, &query.page).await?))
}

async fn show(
    _: Billing,
    mut tx: ReadTx,
    input: In<FindingPath, Empty, ()>,
) -> Result<Json<BillingFinding>, Failure> {
    Ok(Json(billing_finding_get(&mut tx, input.path.finding_id).await?))
}
