//! `billing/refunds`: money that goes back.

use endpoint::{Accepted, Empty, Endpoint, In, Json, Lane, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::{OrgId, PaymentId, RefundId},
    text::Reason,
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use super::OrgPath;
use crate::{Payments, model::refund::Refund, service::refunds};

pub fn endpoints(payments: &Payments) -> Vec<Endpoint> {
    vec![
        get("/api/v1/orgs/{org_id}/billing/refunds", "refund_list", "List refunds")
            .describe("Newest first.")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(payments.clone(), list),
        get("/api/v1/orgs/{org_id}/billing/refunds/{refund_id}", "refund_get", "Show a refund")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(payments.clone(), show),
        get("/api/v1/platform/billing/refunds", "platform_refund_list", "List refunds of all organizations")
            .describe("Newest first.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::MoneyRead)
            .handle(payments.clone(), list_all),
        get("/api/v1/platform/billing/refunds/{refund_id}", "platform_refund_get", "Show a refund of any organization")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::MoneyRead)
            .handle(payments.clone(), show_any),
        post("/api/v1/platform/billing/refunds", "refund_create", "Refund a payment")
            .describe(
                "To the card while the policy's window lasts (allocation.refund_window_days), taken from the balance at once; \
                 as credit after it. Never more than was paid, less what went back and what is disputed.",
            )
            .in_scope(ScopeKind::Platform)
            .lane(Lane::Financial)
            .errors(&[Code::Unprocessable, Code::InsufficientBalance, Code::IdempotencyKeyRequired])
            .needs(Permission::MoneyManage)
            .audited("refund.create")
            .idempotency_required()
            .handle(payments.clone(), create),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct OnePath {
    org_id: OrgId,
    refund_id: RefundId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct AnyPath {
    refund_id: RefundId,
}

async fn list(
    _: Payments,
    mut tx: ReadTx,
    input: In<OrgPath, PageQuery, ()>,
) -> Result<Json<Page<Refund>>, Failure> {
    Ok(Json(refunds::list(&mut tx, Some(input.path.org_id), &input.query).await?))
}

async fn show(_: Payments, mut tx: ReadTx, input: In<OnePath, Empty, ()>) -> Result<Json<Refund>, Failure> {
    Ok(Json(refunds::get(&mut tx, Some(input.path.org_id), input.path.refund_id).await?))
}

async fn list_all(
    _: Payments,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<Refund>>, Failure> {
    Ok(Json(refunds::list(&mut tx, None, &input.query).await?))
}

async fn show_any(
    _: Payments,
    mut tx: ReadTx,
    input: In<AnyPath, Empty, ()>,
) -> Result<Json<Refund>, Failure> {
    Ok(Json(refunds::get(&mut tx, None, input.path.refund_id).await?))
}

/// What is to go back.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RefundCreate {
    payment_id: PaymentId,
    #[schemars(range(min = 1))]
    amount_minor: i64,
    /// Kept in the ledger, where the organization can read it.
    reason: Reason,
}

async fn create(
    payments: Payments,
    mut tx: Write,
    input: In<Empty, Empty, Json<RefundCreate>>,
) -> Result<Accepted<Refund>, Failure> {
    let body = input.body.0;
    let made = refunds::create(&payments, &mut tx, body.payment_id, body.amount_minor, &body.reason).await?;
    Ok(Accepted(made))
}
