//! `/platform/billing/webhook-events`: what the payment provider told us, and what became of it.

use endpoint::{Empty, Endpoint, Given, In, Json, ScopeKind, Write, get, post};
use kernel::{Code, Failure, Page, PageQuery, Permission, ids::EventId, text::Reason};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Payments,
    model::webhook::{MessageState, PaymentMessage},
    service::messages,
};

pub fn endpoints(payments: &Payments) -> Vec<Endpoint> {
    vec![
        get(
            "/api/v1/platform/billing/webhook-events",
            "webhook_event_list",
            "List messages of the payment provider",
        )
        .describe("Newest first, with the state of processing.")
        .in_scope(ScopeKind::Platform)
        .needs(Permission::MoneyRead)
        .handle(payments.clone(), list),
        post(
            "/api/v1/platform/billing/webhook-events/{event_id}/requeue",
            "webhook_event_requeue",
            "Process a failed message again",
        )
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::InvalidTransition])
        .needs(Permission::MoneyManage)
        .audited("webhook_event.requeue")
        .handle(payments.clone(), requeue),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only those in this state.
    #[serde(default)]
    state: Given<MessageState>,
}

async fn list(
    _: Payments,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<PaymentMessage>>, Failure> {
    Ok(Json(messages::list(&mut tx, input.query.state.0, &input.query.page).await?))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct MessagePath {
    event_id: EventId,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MessageRequeue {
    /// What was done about the cause.
    reason: Reason,
}

async fn requeue(
    _: Payments,
    mut tx: Write,
    input: In<MessagePath, Empty, Json<MessageRequeue>>,
) -> Result<Json<PaymentMessage>, Failure> {
    Ok(Json(messages::requeue(&mut tx, input.path.event_id, &input.body.0.reason).await?))
}
