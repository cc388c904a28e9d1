//! What operators see of messages and payments, and may ask for again.

use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    ids::{EventId, OrgId, PaymentId},
    text::Reason,
};
use lifecycle::Named as _;
use pg::{ReadTx, WriteTx, changed, found};

use crate::{
    model::{
        topup::Payment,
        webhook::{MessageState, PaymentMessage},
    },
    store::{payments, webhooks},
};

pub async fn list(
    tx: &mut ReadTx,
    state: Option<MessageState>,
    page: &PageQuery,
) -> Result<Page<PaymentMessage>, Failure> {
    Ok(page.page(webhooks::list(tx.conn(), state, page).await?, |message| message.id.uuid()))
}

/// A message that could not be processed is tried again.
pub async fn requeue(tx: &mut WriteTx, id: EventId, reason: &Reason) -> Result<PaymentMessage, Failure> {
    let before = found(webhooks::lock(tx.conn(), id).await?, "webhook event")?;
    if before.state != MessageState::Failed {
        let text = format!("The message is {}; only a failed message can be retried.", before.state);
        return Err(Problem::new(Code::InvalidTransition, text).detail("state", before.state.name()).into());
    }
    let now = tx.db().ambient().now();
    let after = webhooks::requeue(tx.conn(), id, reason.as_str(), now).await?;
    changed(tx, "payment_message", id, &before, &after)?;
    Ok(after)
}

pub async fn payment_list(
    tx: &mut ReadTx,
    org: Option<OrgId>,
    page: &PageQuery,
) -> Result<Page<Payment>, Failure> {
    Ok(page.page(payments::list(tx.conn(), org, page).await?, |payment| payment.id.uuid()))
}

pub async fn payment_get(tx: &mut ReadTx, org: Option<OrgId>, id: PaymentId) -> Result<Payment, Failure> {
    Ok(found(payments::get(tx.conn(), org, id).await?, "payment")?)
}
