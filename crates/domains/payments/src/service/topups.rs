//! Top-ups: asked for, looked at, waited for, canceled.

use std::time::Duration;

use kernel::{
    Code, CorrelationId, Failure, Page, PageQuery, Problem,
    ids::{OrgId, TopupId},
    policy::keys,
};
use lifecycle::Named as _;
use pg::{Origin, Permit, ReadTx, Watch, WriteTx, changed, created, found};

use crate::{
    CHANNEL, Payments,
    model::topup::{CheckoutOutcome, Topup, TopupState, check_amount},
    store::topups,
};

/// A change whose notification was lost is found after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Keeps the wish; the worker makes the checkout once this is committed, so nothing is asked of the provider that we
/// do not know of.
pub async fn create(
    payments: &Payments,
    tx: &mut WriteTx,
    org: OrgId,
    amount: i64,
) -> Result<Topup, Failure> {
    if payments.provider.name() == "disabled" {
        let text = "This installation does not accept payments.";
        let ask = "Ask the operators of the platform to credit your balance.";
        return Err(Problem::new(Code::Unprocessable, text).suggest(ask).into());
    }
    let (_, currency) = billing::api::balances_of(&payments.billing, tx.conn(), org).await?;
    let limit = |key| payments.policies.setting(key, Some(org), None);
    let minimum = limit(keys::BILLING_MINIMUM_DEPOSIT_MINOR).await?.get();
    let maximum = limit(keys::BILLING_MAXIMUM_DEPOSIT_MINOR).await?.get();
    check_amount(amount, minimum, maximum, &currency)?;
    let ambient = tx.db().ambient().clone();
    let new = topups::New {
        id: ambient.id(),
        org,
        provider: payments.provider.name(),
        amount_minor: amount,
        currency: &currency,
        correlation_id: tx.permit().origin().correlation_id.0,
        now: ambient.now(),
    };
    let topup = topups::create(tx.conn(), new).await?;
    created(tx, "topup", topup.id, &topup)?;
    Ok(topup)
}

pub async fn list(tx: &mut ReadTx, org: OrgId, page: &PageQuery) -> Result<Page<Topup>, Failure> {
    Ok(page.page(topups::list(tx.conn(), org, page).await?, |topup| topup.id.uuid()))
}

/// The top-up as it is, or, with patience, as soon as it can be paid or is over.
pub async fn get(
    payments: &Payments,
    mut tx: ReadTx,
    org: OrgId,
    id: TopupId,
    patience: Duration,
) -> Result<Topup, Failure> {
    let permit = tx.permit().clone();
    let deadline = tokio::time::Instant::now() + patience;
    // Before the first look, so that no change falls between looking and waiting.
    let mut watch = Watch::new(payments.wake.as_ref(), CHANNEL, id.uuid().to_string(), LOOK_AGAIN);
    loop {
        let topup = found(topups::get(tx.conn(), org, id).await?, "topup")?;
        if topup.is_settled() || tokio::time::Instant::now() >= deadline {
            return Ok(topup);
        }
        // Nobody holds a connection while waiting.
        drop(tx);
        watch.wait_for_change(deadline).await;
        tx = payments.db.read(&permit).await?;
    }
}

/// What became of a checkout of any organization, for whoever knows its id.
pub async fn checkout_outcome(payments: &Payments, id: TopupId) -> Result<Option<CheckoutOutcome>, Failure> {
    let db = payments.db();
    let origin = Origin::internal(CorrelationId(db.ambient().uuid()));
    let permit = Permit::system("what became of a checkout, for whoever comes back", origin);
    Ok(topups::outcome(db.read(&permit).await?.conn(), id).await?)
}

/// Ends it without a payment. A checkout that is open ends when the provider says so: until then somebody may pay, and
/// what is paid is credited.
pub async fn cancel(tx: &mut WriteTx, org: OrgId, id: TopupId) -> Result<Topup, Failure> {
    let before = topups::lock(tx.conn(), id).await?.filter(|topup| topup.org_id == org);
    let before = found(before, "topup")?;
    let now = tx.db().ambient().now();
    let after = match before.state {
        TopupState::Created => {
            topups::step(tx.conn(), id, TopupState::Expired, "it was canceled", now).await?
        }
        TopupState::Open if before.cancel_requested_at.is_none() => {
            topups::cancel_requested(tx.conn(), id, now).await?
        }
        TopupState::Open | TopupState::Expired => return Ok(before),
        _ => {
            let text = format!("The top-up is {}; it cannot be canceled.", before.state);
            return Err(Problem::new(Code::InvalidTransition, text)
                .detail("state", before.state.name())
                .into());
        }
    };
    changed(tx, "topup", id, &before, &after)?;
    Ok(after)
}
