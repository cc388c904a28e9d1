//! Takes top-ups to the provider, outside of any transaction, and learns what became of those it has.

use chrono::TimeDelta;
use kernel::Failure;
use pg::changed;

use super::{later, processing::LEASE, settle, write};
use crate::{
    Payments,
    model::{
        topup::{Topup, TopupState},
        wire::CheckoutSession,
    },
    provider::{Checkout, ProviderError},
    store::topups,
};

/// After so many tries, about half an hour later, nobody waits for the checkout any more.
const MOST_ATTEMPTS: i32 = 12;
const FIRST_SECONDS: i64 = 2;
const LONGEST_SECONDS: i64 = 300;
/// Messages get lost: an open checkout is looked at by ourselves, first after five minutes.
const FIRST_LOOK_SECONDS: i64 = 300;
const LONGEST_LOOK_SECONDS: i64 = 3600;

/// Does what is due for one top-up. Whether there was one. Two that do it at once do no harm: the provider makes one
/// checkout for a top-up.
pub async fn advance_next(payments: &Payments) -> Result<bool, Failure> {
    let now = payments.db.ambient().now();
    let mut upkeep = payments.db.upkeep("take a top-up to the payment provider").await?;
    let taken = topups::take_due(upkeep.conn(), payments.provider.name(), now, now + LEASE).await?;
    drop(upkeep);
    let Some(topup) = taken else { return Ok(false) };
    match topup.session_id.clone() {
        None => open(payments, topup).await?,
        Some(session) => checkout_poll(payments, topup, &session).await?,
    }
    Ok(true)
}

async fn open(payments: &Payments, topup: Topup) -> Result<(), Failure> {
    let made = make(payments, &topup).await;
    let now = payments.db.ambient().now();
    let (session, url) = match made {
        Ok(CheckoutSession { id, url: Some(url), .. }) => (id, url),
        Ok(_) => return fail(payments, topup, "the provider made a checkout without an address").await,
        Err(Failure::Internal(error)) => match error.downcast_ref::<ProviderError>() {
            Some(ProviderError::Unavailable(text)) if topup.attempts < MOST_ATTEMPTS => {
                tracing::warn!(topup = %topup.id, text, "no checkout yet, trying again");
                let until = later(now, topup.attempts, FIRST_SECONDS, LONGEST_SECONDS);
                let mut upkeep = payments.db.upkeep("postpone a top-up").await?;
                return Ok(topups::postpone(upkeep.conn(), topup.id, until).await?);
            }
            Some(error) => return fail(payments, topup, &error.to_string()).await,
            None => return Err(Failure::Internal(error)),
        },
        Err(failure) => return Err(failure),
    };
    let reason = "the provider made a checkout";
    let mut tx = write(payments, reason, "topup.open", Some(topup.correlation_id)).await?;
    let Some(before) = topups::lock(tx.conn(), topup.id).await? else { return Ok(()) };
    // Canceled, or paid, in the meantime: nobody learns of the address.
    if before.state != TopupState::Created {
        tx.roll_back().await;
        return Ok(());
    }
    let look_at = now + TimeDelta::seconds(FIRST_LOOK_SECONDS);
    let after = topups::opened(tx.conn(), topup.id, &session, &url, look_at, now).await?;
    tx.audit_in_org(before.org_id);
    changed(&mut tx, "topup", topup.id, &before, &after)?;
    tx.commit(None).await?;
    Ok(())
}

async fn make(payments: &Payments, topup: &Topup) -> Result<CheckoutSession, Failure> {
    let provider = payments.provider.as_ref();
    let mut upkeep = payments.db.upkeep("find a customer of the payment provider").await?;
    let known = topups::customer(upkeep.conn(), topup.org_id, provider.name()).await?;
    drop(upkeep);
    let customer = match known {
        Some(customer) => customer,
        None => {
            let customer = provider.customer_create(topup.org_id).await?;
            let now = payments.db.ambient().now();
            let mut upkeep = payments.db.upkeep("keep a customer of the payment provider").await?;
            topups::customer_keep(upkeep.conn(), topup.org_id, provider.name(), &customer, now).await?;
            customer
        }
    };
    let page = format!("{}/billing/topups/{}", payments.settings.public_url.trim_end_matches('/'), topup.id);
    let checkout = Checkout {
        customer: &customer,
        org: topup.org_id,
        topup: topup.id,
        amount_minor: topup.amount_minor,
        currency: &topup.currency,
        success_url: &format!("{page}?result=paid"),
        cancel_url: &format!("{page}?result=canceled"),
    };
    Ok(provider.checkout_create(checkout).await?)
}

async fn fail(payments: &Payments, topup: Topup, why: &str) -> Result<(), Failure> {
    tracing::warn!(topup = %topup.id, why, "a top-up failed");
    let reason = "the provider makes no checkout";
    let mut tx = write(payments, reason, "topup.fail", Some(topup.correlation_id)).await?;
    let Some(before) = topups::lock(tx.conn(), topup.id).await? else { return Ok(()) };
    if before.state != TopupState::Created {
        tx.roll_back().await;
        return Ok(());
    }
    let now = payments.db.ambient().now();
    let after = topups::step(tx.conn(), topup.id, TopupState::Failed, why, now).await?;
    tx.audit_in_org(before.org_id);
    changed(&mut tx, "topup", topup.id, &before, &after)?;
    tx.commit(None).await?;
    Ok(())
}

/// Polls the state of a checkout; expires it first when its cancellation was requested.
async fn checkout_poll(payments: &Payments, topup: Topup, session: &str) -> Result<(), Failure> {
    let provider = payments.provider.as_ref();
    let expired = match topup.cancel_requested_at {
        Some(_) => provider.checkout_expire(session).await,
        None => Err(ProviderError::Refused(String::new())),
    };
    let found = match expired {
        // One that was paid or is over cannot be ended: see which.
        Err(ProviderError::Refused(_)) => provider.checkout_get(session).await,
        other => other,
    };
    let status = found.as_ref().ok().and_then(|found| found.status.clone());
    match &found {
        Ok(found) if found.is_paid() => {
            let reason = "the provider says that it was paid";
            let mut tx = write(payments, reason, "payment.credit", Some(topup.correlation_id)).await?;
            let result = settle::paid(payments, &mut tx, found).await?;
            tracing::info!(topup = %topup.id, ?result, "a checkout was paid, but its message is missing");
            tx.commit(None).await?;
        }
        Ok(found) if status.as_deref() == Some("expired") => {
            let reason = "the provider says that it is over";
            let mut tx = write(payments, reason, "topup.expire", Some(topup.correlation_id)).await?;
            settle::ended(&mut tx, found, TopupState::Expired, "nobody paid in time").await?;
            tx.commit(None).await?;
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(topup = %topup.id, %error, "could not look at a checkout"),
    }
    let canceling = topup.cancel_requested_at.is_some() && found.is_err();
    let first = if canceling { FIRST_SECONDS } else { FIRST_LOOK_SECONDS };
    let until = later(payments.db.ambient().now(), topup.attempts, first, LONGEST_LOOK_SECONDS);
    let mut upkeep = payments.db.upkeep("look at a checkout again later").await?;
    topups::postpone(upkeep.conn(), topup.id, until).await?;
    Ok(())
}
