//! `billing/payments`: money that arrived.

use endpoint::{Empty, Endpoint, In, Json, OrgPath, ScopeKind, get};
use kernel::{
    Failure, Page, PageQuery, Permission,
    ids::{OrgId, PaymentId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Payments,
    model::topup::Payment,
    service::messages::{payment_get, payment_list},
};

pub fn endpoints(payments: &Payments) -> Vec<Endpoint> {
    vec![
        get("/api/v1/orgs/{org_id}/billing/payments", "payment_list", "List payments")
            .describe("Newest first.")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(payments.clone(), list),
        get("/api/v1/orgs/{org_id}/billing/payments/{payment_id}", "payment_get", "Show a payment")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(payments.clone(), show),
        get(
            "/api/v1/platform/billing/payments",
            "platform_payment_list",
            "List payments of all organizations",
        )
        .describe("Newest first.")
        .in_scope(ScopeKind::Platform)
        .needs(Permission::MoneyRead)
        .handle(payments.clone(), list_all),
        get(
            "/api/v1/platform/billing/payments/{payment_id}",
            "platform_payment_get",
            "Show a payment of any organization",
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
    payment_id: PaymentId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct AnyPath {
    payment_id: PaymentId,
}

async fn list(
    _: Payments,
    mut tx: ReadTx,
    input: In<OrgPath, PageQuery, ()>,
) -> Result<Json<Page<Payment>>, Failure> {
    Ok(Json(payment_list(&mut tx, Some(input.path.org_id), &input.query).await?))
}

async fn show(_: Payments, mut tx: ReadTx, input: In<OnePath, Empty, ()>) -> Result<Json<Payment>, Failure> {
    Ok(Json(payment_get(&mut tx, Some(input.path.org_id), input.path.payment_id).await?))
}

async fn list_all(
    _: Payments,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<Payment>>, Failure> {
    Ok(Json(payment_list(&mut tx, None, &input.query).await?))
}

async fn show_any(
    _: Payments,
    mut tx: ReadTx,
    input: In<AnyPath, Empty, ()>,
) -> Result<Json<Payment>, Failure> {
    Ok(Json(payment_get(&mut tx, None, input.path.payment_id).await?))
}
