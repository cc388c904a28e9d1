//! Refunds: asked for by an administrator, carried out or refused by the provider, or made over there.

use billing::api::{Account, Line, Posting, PostingKind, ProviderFinding};
use chrono::TimeDelta;
use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    ids::{OrgId, PaymentId, PostingId, RefundId},
    policy::keys,
    text::Reason,
};
use pg::{ReadTx, WriteTx, changed, created, found};
use serde_json::json;

use super::MessageResult;
use crate::{
    Payments,
    model::{
        events::PaymentRefunded,
        refund::{Refund, RefundDestination, RefundSource, RefundState, check_amount, check_window},
        topup::Payment,
        wire,
    },
    store::{payments as rows, refunds},
};

/// The provider is asked how far it is, when it does not tell.
pub(crate) const LOOK_AGAIN: TimeDelta = TimeDelta::hours(1);

/// Takes a refund to the card from the balance at once, so that it cannot be spent while it is on its way; the worker
/// sends it once this is committed. After the policy's window unused money stays in the balance.
pub async fn create(
    payments: &Payments,
    tx: &mut WriteTx,
    payment: PaymentId,
    amount: i64,
    reason: &Reason,
) -> Result<Refund, Failure> {
    // From here to the end refunds and disputes of this payment are serial.
    let payment = found(rows::lock(tx.conn(), payment).await?, "payment")?;
    check_amount(&payment, amount)?;
    let key = keys::ALLOCATION_REFUND_WINDOW_DAYS;
    let window = payments.policies.setting(key, Some(payment.org_id), None).await?;
    let ambient = tx.db().ambient().clone();
    let (id, now): (RefundId, _) = (ambient.id(), ambient.now());
    check_window(&payment, now, window)?;
    if payment.provider != payments.provider.name() {
        let text = format!("The payment was made with {}, which is no longer configured.", payment.provider);
        let ask = "Configure the provider again, or credit the balance with an adjustment.";
        return Err(Problem::new(Code::Unprocessable, text).suggest(ask).into());
    }
    let posting = Posting {
        org: payment.org_id,
        kind: PostingKind::Refund,
        reference: Some(id.to_string()),
        reason: reason.to_string(),
        corrects: None,
        lines: vec![Line::new(Account::Prepaid, -amount), Line::new(Account::Refunds, amount)],
    };
    let posted = billing::api::post(&payments.billing, tx, posting).await?;
    let Some(posted) = posted else {
        return Err(Failure::bug("a new refund was posted before"));
    };
    if posted.balances.prepaid_minor < 0 {
        let text = "The balance does not cover the refund: part of the payment was used.";
        let available = (posted.balances.prepaid_minor + amount).max(0);
        return Err(Problem::new(Code::InsufficientBalance, text)
            .detail("available_minor", available)
            .suggest("Refund at most the available balance.")
            .into());
    }
    let new = refunds::New {
        id,
        org: payment.org_id,
        payment: payment.id,
        amount_minor: amount,
        currency: &payment.currency,
        source: RefundSource::Operator,
        reason: reason.as_str(),
        state: RefundState::Pending,
        state_reason: "it is sent to the provider",
        provider_refund: None,
        posting: posted.id,
        requested_by: tx.permit().actor().id,
        correlation_id: tx.permit().origin().correlation_id.0,
        now,
    };
    let refund = refunds::create(tx.conn(), new).await?;
    tx.audit_in_org(refund.org_id);
    created(tx, "refund", id, &refund)?;
    Ok(refund)
}

pub(super) fn emit(tx: &mut WriteTx, refund: &Refund) -> Result<(), Failure> {
    let event = PaymentRefunded {
        org_id: refund.org_id,
        payment_id: refund.payment_id,
        refund_id: refund.id,
        amount_minor: refund.amount_minor,
        currency: refund.currency.clone(),
        to_card: refund.destination == RefundDestination::Card,
    };
    Ok(tx.emit_for(refund.org_id, None, &event)?)
}

/// Applies the state of a refund at the provider, from a message or a poll.
pub async fn refund_update(
    payments: &Payments,
    tx: &mut WriteTx,
    reported: &wire::Refund,
) -> Result<MessageResult, Failure> {
    let Some(refund) = refunds::lock(tx.conn(), reported.ours(), &reported.id).await? else {
        return made_there(payments, tx, reported).await;
    };
    tx.continues(kernel::CorrelationId(refund.correlation_id), None);
    tx.audit_in_org(refund.org_id);
    if reported.amount != refund.amount_minor || !reported.currency.eq_ignore_ascii_case(&refund.currency) {
        let why = format!(
            "the provider says {} {}, and the refund is {} {}",
            reported.amount, reported.currency, refund.amount_minor, refund.currency
        );
        let detail = json!({ "refund_id": refund.id, "ours_minor": refund.amount_minor, "theirs_minor": reported.amount });
        let (subject, org) = (format!("refund {}", reported.id), Some(refund.org_id));
        billing::api::provider_finding(tx, ProviderFinding::Amount, &subject, org, &detail).await?;
        return Ok(MessageResult::Failed(why));
    }
    let now = tx.db().ambient().now();
    // One that was taken back keeps no id: what the provider lists of it is then not in the books, and is found.
    if refund.state == RefundState::Pending {
        refunds::accepted(tx.conn(), refund.id, &reported.id, now + LOOK_AGAIN, now).await?;
    }
    known(tx, &refund).await?;
    match refund.state {
        RefundState::Pending if reported.has_succeeded() => {
            let after =
                refunds::step(tx.conn(), refund.id, RefundState::Succeeded, "the provider sent it", now)
                    .await?;
            emit(tx, &after)?;
            changed(tx, "refund", refund.id, &refund, &after)?;
            Ok(MessageResult::Done("the refund was sent"))
        }
        RefundState::Pending | RefundState::Succeeded if reported.has_failed() => {
            let why =
                reported.failure_reason.clone().unwrap_or_else(|| "the provider gives no reason".to_owned());
            reverse(payments, tx, &refund, &format!("the provider could not send it: {why}")).await?;
            Ok(MessageResult::Done("the refund failed, and the balance has it back"))
        }
        // What is reported of its beginning after the failure that followed it is old news; of one that the provider had refused
        // or that was settled as not sent it is not.
        RefundState::Failed if !reported.has_failed() && refund.provider_refund.is_none() => {
            let why = "the refund had failed and was taken back, and now the provider has it";
            Ok(MessageResult::Failed(why.to_owned()))
        }
        _ => Ok(MessageResult::Done("nothing new about the refund")),
    }
}

/// The provider or an operator reported what became of it: the finding about it is over.
pub(super) async fn known(tx: &mut WriteTx, refund: &Refund) -> Result<(), Failure> {
    if refund.unknown_since.is_some() {
        let subject = format!("refund {}", refund.id);
        billing::api::provider_finding_over(tx, ProviderFinding::RefundUnknown, &subject).await?;
    }
    Ok(())
}

/// It did not go out: the balance has it back.
pub async fn reverse(
    payments: &Payments,
    tx: &mut WriteTx,
    refund: &Refund,
    why: &str,
) -> Result<(), Failure> {
    let why: String = why.chars().take(400).collect();
    let posting = Posting {
        org: refund.org_id,
        kind: PostingKind::Correction,
        reference: Some(refund.id.to_string()),
        reason: why.clone(),
        corrects: Some(refund.posting_id),
        lines: vec![
            Line::new(Account::Prepaid, refund.amount_minor),
            Line::new(Account::Refunds, -refund.amount_minor),
        ],
    };
    billing::api::post(&payments.billing, tx, posting).await?;
    let now = tx.db().ambient().now();
    let after = refunds::step(tx.conn(), refund.id, RefundState::Failed, &why, now).await?;
    tx.audit_in_org(refund.org_id);
    changed(tx, "refund", refund.id, refund, &after)
}

/// Somebody made it at the provider: the money is gone whether the balance covers it or not.
async fn made_there(
    payments: &Payments,
    tx: &mut WriteTx,
    reported: &wire::Refund,
) -> Result<MessageResult, Failure> {
    let Some(intent) = reported.payment_intent.as_ref().map(|intent| intent.id().to_owned()) else {
        return Ok(MessageResult::Ignored("not about a payment of ours"));
    };
    let known = rows::id_of(tx.conn(), &intent).await?;
    let payment = match known {
        Some(id) => rows::lock(tx.conn(), id).await?,
        None => None,
    };
    let Some(payment) = payment else { return Ok(MessageResult::Waits { intent }) };
    if refunds::lock(tx.conn(), None, &reported.id).await?.is_some() {
        // Another message about it came first while we waited for the lock: look again.
        return Err(Problem::new(Code::Conflict, "Another message made the refund meanwhile.").into());
    }
    if !reported.currency.eq_ignore_ascii_case(&payment.currency) || reported.amount <= 0 {
        return Ok(MessageResult::Failed(format!(
            "a refund of {} {} cannot be booked",
            reported.amount, reported.currency
        )));
    }
    let posting = Posting {
        org: payment.org_id,
        kind: PostingKind::Refund,
        reference: Some(reported.id.clone()),
        reason: "refunded at the payment provider".to_owned(),
        corrects: None,
        lines: vec![
            Line::new(Account::Prepaid, -reported.amount),
            Line::new(Account::Refunds, reported.amount),
        ],
    };
    let Some(posted) = billing::api::post(&payments.billing, tx, posting).await? else {
        return Ok(MessageResult::Failed(format!("{} was booked before, for something else", reported.id)));
    };
    let refund = keep_made_there(tx, &payment, reported, posted.id).await?;
    if reported.has_failed() {
        // Booked and taken back, so that what is reported late about its beginning finds it over.
        reverse(payments, tx, &refund, "it failed at the payment provider").await?;
    }
    Ok(MessageResult::Done("a refund that somebody made at the provider"))
}

async fn keep_made_there(
    tx: &mut WriteTx,
    payment: &Payment,
    reported: &wire::Refund,
    posting: PostingId,
) -> Result<Refund, Failure> {
    let ambient = tx.db().ambient().clone();
    let state = if reported.has_succeeded() { RefundState::Succeeded } else { RefundState::Pending };
    let new = refunds::New {
        id: ambient.id(),
        org: payment.org_id,
        payment: payment.id,
        amount_minor: reported.amount,
        currency: &payment.currency,
        source: RefundSource::Provider,
        reason: "refunded at the payment provider",
        state,
        state_reason: "made at the payment provider",
        provider_refund: Some(&reported.id),
        posting,
        requested_by: None,
        correlation_id: tx.permit().origin().correlation_id.0,
        now: ambient.now(),
    };
    let refund = refunds::create(tx.conn(), new).await?;
    tx.audit_in_org(payment.org_id);
    if state == RefundState::Succeeded {
        emit(tx, &refund)?;
    }
    created(tx, "refund", refund.id, &refund)?;
    Ok(refund)
}

pub async fn list(tx: &mut ReadTx, org: Option<OrgId>, page: &PageQuery) -> Result<Page<Refund>, Failure> {
    Ok(page.page(refunds::list(tx.conn(), org, page).await?, |refund| refund.id.uuid()))
}

pub async fn get(tx: &mut ReadTx, org: Option<OrgId>, id: RefundId) -> Result<Refund, Failure> {
    Ok(found(refunds::get(tx.conn(), org, id).await?, "refund")?)
}
