//! `billing/disputes`: payments that a cardholder disputes.

use endpoint::{Empty, Endpoint, In, Json, OrgPath, ScopeKind, get};
use kernel::{
    Failure, Page, PageQuery, Permission,
    ids::{DisputeId, OrgId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Payments, model::dispute::Dispute, service::disputes};

pub fn endpoints(payments: &Payments) -> Vec<Endpoint> {
    vec![
        get("/api/v1/orgs/{org_id}/billing/disputes", "dispute_list", "List disputes")
            .describe("Newest first.")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(payments.clone(), list),
        get("/api/v1/orgs/{org_id}/billing/disputes/{dispute_id}", "dispute_get", "Show a dispute")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(payments.clone(), show),
        get(
            "/api/v1/platform/billing/disputes",
            "platform_dispute_list",
            "List disputes of all organizations",
        )
        .describe("Newest first.")
        .in_scope(ScopeKind::Platform)
        .needs(Permission::MoneyRead)
        .handle(payments.clone(), list_all),
        get(
            "/api/v1/platform/billing/disputes/{dispute_id}",
            "platform_dispute_get",
            "Show a dispute of any organization",
        )
        .in_scope(ScopeKind::Platform)
        .needs(Permission::MoneyRead)
        .handle(payments.clone(), show_any),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct OnePath {
    org_id: OrgId,
    dispute_id: DisputeId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct AnyPath {
    dispute_id: DisputeId,
}

async fn list(
    _: Payments,
    mut tx: ReadTx,
    input: In<OrgPath, PageQuery, ()>,
) -> Result<Json<Page<Dispute>>, Failure> {
    Ok(Json(disputes::list(&mut tx, Some(input.path.org_id), &input.query).await?))
}

async fn show(_: Payments, mut tx: ReadTx, input: In<OnePath, Empty, ()>) -> Result<Json<Dispute>, Failure> {
    Ok(Json(disputes::get(&mut tx, Some(input.path.org_id), input.path.dispute_id).await?))
}

async fn list_all(
    _: Payments,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<Dispute>>, Failure> {
    Ok(Json(disputes::list(&mut tx, None, &input.query).await?))
}

async fn show_any(
    _: Payments,
    mut tx: ReadTx,
    input: In<AnyPath, Empty, ()>,
) -> Result<Json<Dispute>, Failure> {
    Ok(Json(disputes::get(&mut tx, None, input.path.dispute_id).await?))
}
