//! Sends refunds to the provider, outside of any transaction, and asks after those that are on their way.

use std::time::Duration;

use billing::api::ProviderFinding;
use chrono::TimeDelta;
use kernel::Failure;
use serde_json::json;

use super::{later, processing::LEASE, refunds as refund_service, write};
use crate::{
    Payments,
    model::refund::{Refund, RefundState},
    provider::ProviderError,
    store::refunds,
};

const FIRST_SECONDS: i64 = 2;
const LONGEST_SECONDS: i64 = 900;
/// The provider forgets keys a day after the first call, and would refund once more. Before that we stop asking: whether it
/// was sent is then for a person to find out. What was never asked for is sent however old it is.
const ASK_FOR: TimeDelta = TimeDelta::hours(20);
/// One call that sends a refund. Less than [`LEASE`].
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Does what is due for one refund. Whether there was one.
pub async fn send_next(payments: &Payments) -> Result<bool, Failure> {
    let now = payments.db.ambient().now();
    let mut upkeep = payments.db.upkeep("take a refund to the payment provider").await?;
    let taken = refunds::take_due(upkeep.conn(), payments.provider.name(), now, LEASE).await?;
    drop(upkeep);
    let Some((refund, intent)) = taken else { return Ok(false) };
    let provider = payments.provider.as_ref();
    let sent = match &refund.provider_refund {
        None if refund.first_attempt_at.is_some_and(|first| now - first > ASK_FOR) => {
            return give_up(payments, &refund).await;
        }
        None => {
            let mut upkeep = payments.db.upkeep("a refund is about to be sent").await?;
            let still =
                refunds::lease_renew(upkeep.conn(), &refund, payments.db.ambient().now(), LEASE).await?;
            drop(upkeep);
            if !still {
                return Ok(true);
            }
            let call = provider.refund_create(&intent, refund.amount_minor, refund.id);
            // Ended well before the lease: who finds the lease over finds nobody sending.
            tokio::time::timeout(CALL_LIMIT, call)
                .await
                .unwrap_or_else(|_| Err(ProviderError::Unavailable("the call took too long".to_owned())))
        }
        Some(id) => provider.refund_get(id).await,
    };
    match sent {
        Ok(reported) => {
            let reason = "the provider took a refund";
            let mut tx = write(payments, reason, "refund.send", Some(refund.correlation_id)).await?;
            let result = refund_service::refund_update(payments, &mut tx, &reported).await?;
            tracing::info!(refund = %refund.id, ?result, "the provider has a refund");
            tx.commit(None).await?;
            let mut upkeep = payments.db.upkeep("look at a refund again later").await?;
            let until = payments.db.ambient().now() + refund_service::LOOK_AGAIN;
            refunds::postpone(upkeep.conn(), &refund, "the provider carries it out", until).await?;
        }
        // It never will: nothing was sent.
        Err(ProviderError::Refused(text)) if refund.provider_refund.is_none() => {
            refused(payments, &refund, &format!("the provider refused it: {text}")).await?;
        }
        Err(error) => {
            tracing::warn!(refund = %refund.id, %error, "a refund was not sent, trying again");
            let until = later(payments.db.ambient().now(), refund.attempts, FIRST_SECONDS, LONGEST_SECONDS);
            let mut upkeep = payments.db.upkeep("postpone a refund").await?;
            refunds::postpone(upkeep.conn(), &refund, &error.to_string(), until).await?;
        }
    }
    Ok(true)
}

async fn refused(payments: &Payments, refund: &Refund, why: &str) -> Result<(), Failure> {
    let reason = "the provider refused a refund";
    let mut tx = write(payments, reason, "refund.fail", Some(refund.correlation_id)).await?;
    let Some(now) = refunds::lock(tx.conn(), Some(refund.id), "").await? else { return Ok(()) };
    if now.state != RefundState::Pending || now.provider_refund.is_some() {
        tx.roll_back().await;
        return Ok(());
    }
    refund_service::reverse(payments, &mut tx, &now, why).await?;
    tx.commit(None).await?;
    Ok(())
}

/// It may have been sent or not, and asking again could send it twice: an operator settles it.
async fn give_up(payments: &Payments, refund: &Refund) -> Result<bool, Failure> {
    let why = "unknown result: check the provider and settle the refund";
    let reason = "a refund was asked for too often";
    let mut tx = write(payments, reason, "refund.give_up", Some(refund.correlation_id)).await?;
    if !refunds::unknown(tx.conn(), refund.id, why, payments.db.ambient().now()).await? {
        tx.roll_back().await;
        return Ok(true);
    }
    let after = refunds::get(tx.conn(), Some(refund.org_id), refund.id).await?;
    let (subject, org) = (format!("refund {}", refund.id), Some(refund.org_id));
    let detail =
        json!({ "refund_id": refund.id, "amount_minor": refund.amount_minor, "currency": refund.currency });
    billing::api::provider_finding(&mut tx, ProviderFinding::RefundUnknown, &subject, org, &detail).await?;
    tx.audit_in_org(refund.org_id);
    tx.record("refund", refund.id, Some(refund), after.as_ref())?;
    tx.commit(None).await?;
    tracing::error!(refund = %refund.id, "the result of a refund is unknown; check the provider");
    metrics::counter!("payment_refunds_unknown_total").increment(1);
    Ok(true)
}
