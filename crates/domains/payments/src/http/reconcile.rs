//! `/platform/billing/reconciliations`: days that are compared with the payment provider.

use chrono::NaiveDate;
use endpoint::{Accepted, Empty, Endpoint, In, Json, ScopeKind, Write, get, post};
use kernel::{Code, Failure, Page, PageQuery, Permission};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Payments, model::day::PaymentDay, service::reconcile};

pub fn endpoints(payments: &Payments) -> Vec<Endpoint> {
    const ALL: &str = "/api/v1/platform/billing/reconciliations";
    vec![
        get(ALL, "payment_reconcile_list", "List daily reconciliations with the payment provider")
            .describe("Differences are recorded as billing findings.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::MoneyRead)
            .handle(payments.clone(), list),
        post(ALL, "payment_reconcile", "Reconcile a day with the payment provider")
            .describe("Each day is reconciled automatically after it has ended; this repeats one, or reconciles an older one.")
            .in_scope(ScopeKind::Platform)
            .errors(&[Code::Unprocessable])
            .needs(Permission::MoneyManage)
            .audited("payment.reconcile")
            .handle(payments.clone(), request),
    ]
}

async fn list(
    _: Payments,
    mut tx: ReadTx,
    input: In<Empty, PageQuery, ()>,
) -> Result<Json<Page<PaymentDay>>, Failure> {
    Ok(Json(reconcile::list(&mut tx, &input.query).await?))
}

/// A day in UTC.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReconcileRequest {
    day: NaiveDate,
}

async fn request(
    payments: Payments,
    mut tx: Write,
    input: In<Empty, Empty, Json<ReconcileRequest>>,
) -> Result<Accepted<PaymentDay>, Failure> {
    Ok(Accepted(reconcile::request(&payments, &mut tx, input.body.0.day).await?))
}
