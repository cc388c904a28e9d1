//! `/orgs/{org_id}/billing/topups`: paying in.

use endpoint::{Accepted, Empty, Endpoint, In, Json, Lane, OrgPath, ScopeKind, WaitQuery, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::{OrgId, TopupId},
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Payments, model::topup::Topup, service::topups};

pub fn endpoints(payments: &Payments) -> Vec<Endpoint> {
    const ALL: &str = "/api/v1/orgs/{org_id}/billing/topups";
    const ONE: &str = "/api/v1/orgs/{org_id}/billing/topups/{topup_id}";
    vec![
        post(ALL, "topup_create", "Top up the balance")
            .describe(
                "The checkout is created asynchronously at the payment provider: read the top-up with `wait` \
                 until it has a `url`, and pay there. The balance is credited when the provider reports the \
                 payment.",
            )
            .in_scope(ScopeKind::Org)
            .lane(Lane::Financial)
            .errors(&[Code::Unprocessable, Code::IdempotencyKeyRequired])
            .needs(Permission::BillingManage)
            .audited("topup.create")
            .idempotency_required()
            .handle(payments.clone(), create),
        get(ALL, "topup_list", "List top-ups")
            .describe("Newest first.")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(payments.clone(), list),
        get(ONE, "topup_get", "Show a top-up, or wait until it can be paid")
            .describe("With `wait`, a long poll: the server responds when there is a `url` or the top-up has ended, at the latest after that time.")
            .in_scope(ScopeKind::Org)
            .needs(Permission::BillingRead)
            .handle(payments.clone(), show),
        post("/api/v1/orgs/{org_id}/billing/topups/{topup_id}/cancel", "topup_cancel", "Cancel a top-up")
            .describe(
                "An open checkout ends when the provider reports it; payments until then are credited. \
                 Idempotent.",
            )
            .in_scope(ScopeKind::Org)
            .lane(Lane::Financial)
            .errors(&[Code::InvalidTransition])
            .needs(Permission::BillingManage)
            .audited("topup.cancel")
            .handle(payments.clone(), cancel),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct TopupPath {
    org_id: OrgId,
    topup_id: TopupId,
}

/// How much to pay in.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TopupCreate {
    /// In the smallest unit of the currency of the balance, within the limits of the policy.
    #[schemars(range(min = 1))]
    amount_minor: i64,
}

async fn create(
    payments: Payments,
    mut tx: Write,
    input: In<OrgPath, Empty, Json<TopupCreate>>,
) -> Result<Accepted<Topup>, Failure> {
    let amount = input.body.0.amount_minor;
    Ok(Accepted(topups::create(&payments, &mut tx, input.path.org_id, amount).await?))
}

async fn list(
    _: Payments,
    mut tx: ReadTx,
    input: In<OrgPath, PageQuery, ()>,
) -> Result<Json<Page<Topup>>, Failure> {
    Ok(Json(topups::list(&mut tx, input.path.org_id, &input.query).await?))
}

async fn show(
    payments: Payments,
    tx: ReadTx,
    input: In<TopupPath, WaitQuery, ()>,
) -> Result<Json<Topup>, Failure> {
    let patience = input.query.patience()?;
    let path = input.path;
    Ok(Json(topups::get(&payments, tx, path.org_id, path.topup_id, patience).await?))
}

async fn cancel(
    _: Payments,
    mut tx: Write,
    input: In<TopupPath, Empty, ()>,
) -> Result<Accepted<Topup>, Failure> {
    Ok(Accepted(topups::cancel(&mut tx, input.path.org_id, input.path.topup_id).await?))
}
