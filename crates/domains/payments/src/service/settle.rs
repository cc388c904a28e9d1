//! What became of a checkout: paid, or over. The same whether the provider told or was asked.

use billing::api::{Account, Line, Posting, PostingKind, ProviderFinding};
use kernel::Failure;
use pg::{WriteTx, changed, created};
use serde_json::json;

use super::MessageResult;
use crate::{
    Payments,
    model::{
        events::BalanceCredited,
        topup::{Topup, TopupState},
        wire::CheckoutSession,
    },
    store::{payments as rows, topups, webhooks},
};

/// Credits what was paid, once: the top-up is locked, and the ledger takes the provider's id of the payment once.
pub async fn paid(
    payments: &Payments,
    tx: &mut WriteTx,
    session: &CheckoutSession,
) -> Result<MessageResult, Failure> {
    let Some(id) = session.topup() else { return Ok(MessageResult::Ignored("not a checkout of ours")) };
    let Some(topup) = topups::lock(tx.conn(), id).await? else {
        return Ok(MessageResult::Failed(format!("there is no top-up {id}")));
    };
    tx.continues(kernel::CorrelationId(topup.correlation_id), None);
    tx.audit_in_org(topup.org_id);
    if !session.is_paid() {
        let paid = topup.state == TopupState::Paid;
        let why = if paid {
            "it was credited before"
        } else {
            "it is not paid yet; another message comes when it is"
        };
        return Ok(MessageResult::Done(why));
    }
    let Some(intent) = session.payment_intent.as_ref().map(|intent| intent.id().to_owned()) else {
        return Ok(MessageResult::Failed("it names no payment".to_owned()));
    };
    if topup.state == TopupState::Paid {
        if rows::id_of(tx.conn(), &intent).await?.is_some() {
            return Ok(MessageResult::Done("it was credited before"));
        }
        // Somebody's money is with the provider and in no balance: it must not be taken for the first payment.
        let why = format!("the top-up was paid before, and {intent} is another payment for it");
        return disagree(tx, topup, (ProviderFinding::Extra, &intent), session, why).await;
    }
    // What the ledger is kept in may be another currency than when the top-up was asked for.
    let (_, kept_in) = billing::api::balances_of(&payments.billing, tx.conn(), topup.org_id).await?;
    if let Some(why) = disagreement(&topup, session, &kept_in) {
        return disagree(tx, topup, (ProviderFinding::Amount, &intent), session, why).await;
    }
    let posting = Posting {
        org: topup.org_id,
        kind: PostingKind::Topup,
        reference: Some(intent.clone()),
        reason: format!("top-up {id}"),
        corrects: None,
        lines: vec![
            Line::new(Account::Prepaid, topup.amount_minor),
            Line::new(Account::CashStripe, -topup.amount_minor),
        ],
    };
    let Some(posted) = billing::api::post(&payments.billing, tx, posting).await? else {
        return Ok(MessageResult::Failed(format!("{intent} was credited for something else")));
    };
    let ambient = tx.db().ambient().clone();
    let now = ambient.now();
    let new = rows::New {
        id: ambient.id(),
        org: topup.org_id,
        topup: id,
        provider: &topup.provider,
        intent: &intent,
        amount_minor: topup.amount_minor,
        currency: &topup.currency,
        posting: posted.id,
        now,
    };
    let payment = rows::create(tx.conn(), new).await?;
    topups::step(tx.conn(), id, TopupState::Paid, "it was paid", now).await?;
    webhooks::wake(tx.conn(), &intent, now).await?;
    let event = BalanceCredited {
        org_id: topup.org_id,
        payment_id: payment.id,
        amount_minor: payment.amount_minor,
        currency: payment.currency.clone(),
    };
    tx.emit_for(topup.org_id, None, &event)?;
    created(tx, "payment", payment.id, &payment)?;
    metrics::counter!("payments_credited_total").increment(1);
    Ok(MessageResult::Done("credited"))
}

fn disagreement(topup: &Topup, session: &CheckoutSession, kept_in: &str) -> Option<String> {
    if topup.currency != kept_in {
        return Some(format!("the top-up is in {}, and the ledger is kept in {kept_in}", topup.currency));
    }
    let currency = session.currency.as_deref().unwrap_or_default();
    if session.amount_total == Some(topup.amount_minor) && currency.eq_ignore_ascii_case(&topup.currency) {
        return None;
    }
    let amount = session.amount_total.map_or_else(|| "nothing".to_owned(), |amount| amount.to_string());
    let (wanted, own) = (topup.amount_minor, &topup.currency);
    Some(format!("the provider says {amount} {currency}, and the top-up is {wanted} {own}"))
}

/// Nothing is credited: a person finds out which of the two is right.
async fn disagree(
    tx: &mut WriteTx,
    topup: Topup,
    (kind, intent): (ProviderFinding, &str),
    session: &CheckoutSession,
    why: String,
) -> Result<MessageResult, Failure> {
    let detail = json!({
        "topup_id": topup.id, "session": session.id, "ours_minor": topup.amount_minor, "ours_currency": topup.currency,
        "theirs_minor": session.amount_total, "theirs_currency": session.currency,
    });
    let (subject, org) = (format!("payment {intent}"), Some(topup.org_id));
    billing::api::provider_finding(tx, kind, &subject, org, &detail).await?;
    if matches!(topup.state, TopupState::Created | TopupState::Open) {
        let now = tx.db().ambient().now();
        let after = topups::step(tx.conn(), topup.id, TopupState::Failed, &why, now).await?;
        changed(tx, "topup", topup.id, &topup, &after)?;
    }
    Ok(MessageResult::Failed(why))
}

/// Nobody will pay it: it took too long, was canceled, or the payment failed.
pub async fn ended(
    tx: &mut WriteTx,
    session: &CheckoutSession,
    to: TopupState,
    why: &str,
) -> Result<MessageResult, Failure> {
    let Some(id) = session.topup() else { return Ok(MessageResult::Ignored("not a checkout of ours")) };
    let Some(topup) = topups::lock(tx.conn(), id).await? else {
        return Ok(MessageResult::Failed(format!("there is no top-up {id}")));
    };
    tx.continues(kernel::CorrelationId(topup.correlation_id), None);
    tx.audit_in_org(topup.org_id);
    if !matches!(topup.state, TopupState::Created | TopupState::Open) {
        return Ok(MessageResult::Done("it was over before"));
    }
    let why = if topup.cancel_requested_at.is_some() { "it was canceled" } else { why };
    let now = tx.db().ambient().now();
    let after = topups::step(tx.conn(), id, to, why, now).await?;
    changed(tx, "topup", id, &topup, &after)?;
    Ok(MessageResult::Done("over without a payment"))
}
