//! Refunds of which it is not known whether the provider sent them: an operator looks there and says so.

use kernel::{
    Code, Failure, Problem,
    ids::{RefundId, UserId},
    text::Reason,
};
use pg::{WriteTx, changed, found};

use super::refunds::{LOOK_AGAIN, emit, known, reverse};
use crate::{
    Payments,
    model::refund::{Refund, RefundState, Settlement, check_settle},
    store::{payments as rows, refunds},
};

/// Ends a refund as an operator found it at the provider: sent, or taken back into the balance. Reconciliation with the
/// provider's list compares what was said to be sent.
pub async fn refund_settle(
    payments: &Payments,
    tx: &mut WriteTx,
    by: UserId,
    id: RefundId,
    settlement: Settlement,
    reason: &Reason,
) -> Result<Refund, Failure> {
    let before = found(refunds::lock(tx.conn(), Some(id), "").await?, "refund")?;
    tx.audit_in_org(before.org_id);
    let provider = rows::provider_of(tx.conn(), before.payment_id).await?;
    // The row is locked, and no worker takes a locked one: who is sending it now began before and is seen here.
    let leased_seconds = refunds::lease_seconds(tx.conn(), id).await?;
    check_settle(&before, provider == payments.provider.name(), leased_seconds, &settlement, by)?;
    known(tx, &before).await?;
    let now = tx.db().ambient().now();
    match settlement {
        Settlement::NotSent => {
            reverse(payments, tx, &before, &format!("an operator settled it as not sent: {reason}")).await?;
            Ok(found(refunds::get(tx.conn(), None, id).await?, "refund")?)
        }
        Settlement::Sent { provider_refund } => {
            refunds::accepted(tx.conn(), id, &provider_refund, now + LOOK_AGAIN, now)
                .await
                .map_err(|error| another_has_it(error, &provider_refund))?;
            let why = format!("an operator settled it as sent: {reason}");
            let after = refunds::step(tx.conn(), id, RefundState::Succeeded, &why, now).await?;
            emit(tx, &after)?;
            changed(tx, "refund", id, &before, &after)?;
            Ok(after)
        }
    }
}

fn another_has_it(error: sqlx::Error, provider_refund: &str) -> Failure {
    if pg::constraint_violated(&error) != Some("refunds_provider_refund_key") {
        return error.into();
    }
    let text = format!("{provider_refund} is the provider's id of another refund.");
    Problem::new(Code::AlreadyExists, text)
        .suggest("Find the refund at the provider by its metadata `refund_id`.")
        .into()
}
