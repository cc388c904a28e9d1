//! `billing/refunds`: money that goes back.

use endpoint::{Accepted, Empty, Endpoint, Given, In, Json, Lane, OrgPath, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission, Problem,
    ids::{OrgId, PaymentId, RefundId},
    text::Reason,
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Payments,
    model::refund::{Refund, Settlement},
    service::{refund_settlement::refund_settle, refunds},
};

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
        get(
            "/api/v1/platform/billing/refunds/{refund_id}",
            "platform_refund_get",
            "Show a refund of any organization",
        )
        .in_scope(ScopeKind::Platform)
        .needs(Permission::MoneyRead)
        .handle(payments.clone(), show_any),
        post("/api/v1/platform/billing/refunds", "refund_create", "Refund a payment")
            .describe(
                "To the card within the window of the policy allocation.refund_window_days; the balance is \
                 debited immediately. After the window, unused money stays in the balance; credit used money \
                 with an adjustment. At most the paid amount less refunds and disputes.",
            )
            .in_scope(ScopeKind::Platform)
            .lane(Lane::Financial)
            .errors(&[Code::Unprocessable, Code::InsufficientBalance, Code::IdempotencyKeyRequired])
            .needs(Permission::MoneyManage)
            .audited("refund.create")
            .idempotency_required()
            .handle(payments.clone(), create),
        post(
            "/api/v1/platform/billing/refunds/{refund_id}/settle",
            "refund_settle",
            "Settle a refund with an unknown result",
        )
        .describe(
            "For refunds with `unknown_since`, after checking the provider: `sent` with the provider's id of \
             the refund, or `not_sent`, which credits the balance and needs another administrator than the \
             one who requested the refund.",
        )
        .in_scope(ScopeKind::Platform)
        .lane(Lane::Financial)
        .errors(&[Code::InvalidTransition, Code::AlreadyExists, Code::IdempotencyKeyRequired])
        .needs(Permission::MoneyManage)
        .audited("refund.settle")
        .idempotency_required()
        .handle(payments.clone(), settle),
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

/// What became of it at the provider.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Outcome {
    Sent,
    NotSent,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RefundSettle {
    outcome: Outcome,
    /// The provider's id of the refund; with `sent` only.
    #[serde(default)]
    provider_refund: Given<ProviderRefund>,
    /// How it was found out; kept in the ledger, where the organization can read it.
    reason: Reason,
}

/// As the provider writes it.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ProviderRefund(#[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,255}$"))] String);

impl ProviderRefund {
    fn is_id(&self) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        (1..=255).contains(&self.0.len()) && self.0.bytes().all(fits)
    }
}

async fn settle(
    payments: Payments,
    mut tx: Write,
    input: In<AnyPath, Empty, Json<RefundSettle>>,
) -> Result<Json<Refund>, Failure> {
    let (by, body) = (input.access.user()?, input.body.0);
    let settlement = match (body.outcome, body.provider_refund.0) {
        (Outcome::Sent, Some(id)) if id.is_id() => Settlement::Sent { provider_refund: id.0 },
        (Outcome::NotSent, None) => Settlement::NotSent,
        (Outcome::Sent, _) => {
            return Err(Problem::field(
                "provider_refund",
                "must be the provider's id of the refund: letters, digits, _ and -",
            )
            .into());
        }
        (Outcome::NotSent, Some(_)) => {
            return Err(Problem::field(
                "provider_refund",
                "must be omitted: a refund that was not sent has no id at the provider",
            )
            .into());
        }
    };
    let refund_id = input.path.refund_id;
    Ok(Json(refund_settle(&payments, &mut tx, by, refund_id, settlement, &body.reason).await?))
}
