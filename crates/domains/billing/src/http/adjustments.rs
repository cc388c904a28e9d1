//! `/platform/billing/adjustments`: credits, promotional credit and corrections by administrators.

use endpoint::{Created, Empty, Endpoint, Given, In, Json, Lane, ScopeKind, Write, get, post};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::{AdjustmentId, OrgId, PostingId},
    text::Reason,
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Billing,
    model::adjustment::{Adjustment, AdjustmentKind, AdjustmentState},
    service::adjustments::{
        Wanted, adjustment_approve, adjustment_create, adjustment_get, adjustment_list, adjustment_reject,
    },
};

pub fn endpoints(billing: &Billing) -> Vec<Endpoint> {
    const CREATE: &str = "Posted immediately up to the policy `billing.adjustment_approval_minor`. The limit \
                          counts everything that you posted without approval, and everything posted without \
                          approval for the organization, in the last 24 hours. Above the limit the \
                          adjustment is `proposed` until another administrator approves it. A correction \
                          names the corrected posting.";
    vec![
        post("/api/v1/platform/billing/adjustments", "adjustment_create", "Adjust an organization's ledger")
            .describe(CREATE)
            .in_scope(ScopeKind::Platform)
            .lane(Lane::Financial)
            .idempotency_required()
            .errors(&[Code::Unprocessable])
            .needs(Permission::MoneyManage)
            .audited("adjustment.create")
            .handle(billing.clone(), create),
        get("/api/v1/platform/billing/adjustments", "adjustment_list", "List adjustments")
            .describe("Newest first.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::MoneyRead)
            .handle(billing.clone(), list),
        get("/api/v1/platform/billing/adjustments/{adjustment_id}", "adjustment_get", "Show an adjustment")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::MoneyRead)
            .handle(billing.clone(), show),
        post(
            "/api/v1/platform/billing/adjustments/{adjustment_id}/approve",
            "adjustment_approve",
            "Approve an adjustment that somebody else proposed",
        )
        .in_scope(ScopeKind::Platform)
        .lane(Lane::Financial)
        .idempotency_required()
        .errors(&[Code::InvalidTransition])
        .needs(Permission::MoneyManage)
        .audited("adjustment.approve")
        .handle(billing.clone(), approve),
        post(
            "/api/v1/platform/billing/adjustments/{adjustment_id}/reject",
            "adjustment_reject",
            "Reject an adjustment that somebody else proposed",
        )
        .in_scope(ScopeKind::Platform)
        .lane(Lane::Financial)
        .errors(&[Code::InvalidTransition])
        .needs(Permission::MoneyManage)
        .audited("adjustment.reject")
        .handle(billing.clone(), reject),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AdjustmentCreate {
    org_id: OrgId,
    kind: AdjustmentKind,
    /// What the organization gains; less than zero only for corrections.
    amount_minor: i64,
    reason: Reason,
    /// The posting that a correction corrects.
    #[serde(default)]
    corrects_entry_id: Given<PostingId>,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct AdjustmentPath {
    adjustment_id: AdjustmentId,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only those of this organization.
    #[serde(default)]
    org_id: Given<OrgId>,
    /// Only those in this state.
    #[serde(default)]
    state: Given<AdjustmentState>,
}

async fn create(
    billing: Billing,
    mut tx: Write,
    input: In<Empty, Empty, Json<AdjustmentCreate>>,
) -> Result<Created<Adjustment>, Failure> {
    let (by, body) = (input.access.user()?, input.body.0);
    let wanted = Wanted {
        org: body.org_id,
        kind: body.kind,
        amount_minor: body.amount_minor,
        reason: body.reason,
        corrects: body.corrects_entry_id.0,
    };
    Ok(Created(adjustment_create(&billing, &mut tx, by, wanted).await?))
}

async fn list(
    _: Billing,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<Adjustment>>, Failure> {
    let query = input.query;
    Ok(Json(adjustment_list(&mut tx, query.org_id.0, query.state.0, &query.page).await?))
}

async fn show(
    _: Billing,
    mut tx: ReadTx,
    input: In<AdjustmentPath, Empty, ()>,
) -> Result<Json<Adjustment>, Failure> {
    Ok(Json(adjustment_get(&mut tx, input.path.adjustment_id).await?))
}

async fn approve(
    billing: Billing,
    mut tx: Write,
    input: In<AdjustmentPath, Empty, ()>,
) -> Result<Json<Adjustment>, Failure> {
    let by = input.access.user()?;
    Ok(Json(adjustment_approve(&billing, &mut tx, by, input.path.adjustment_id).await?))
}

async fn reject(
    billing: Billing,
    mut tx: Write,
    input: In<AdjustmentPath, Empty, ()>,
) -> Result<Json<Adjustment>, Failure> {
    let by = input.access.user()?;
    Ok(Json(adjustment_reject(&billing, &mut tx, by, input.path.adjustment_id).await?))
}
