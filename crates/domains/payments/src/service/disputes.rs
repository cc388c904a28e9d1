//! Disputes: frozen while they last, then free again or gone.

use billing::api::{Account, Line, Posting, PostingKind};
use kernel::{
    Failure, Page, PageQuery,
    ids::{DisputeId, OrgId},
};
use pg::{ReadTx, WriteTx, changed, created, found};

use super::MessageResult;
use crate::{
    Payments,
    model::{
        dispute::{Dispute, DisputeState, provider_status_read},
        events::PaymentDisputed,
        wire,
    },
    store::{disputes, payments as rows},
};

/// Applies the state of a dispute at the provider. Each message contains the whole dispute: the first one creates it, and a
/// late one changes nothing.
pub async fn dispute_update(
    payments: &Payments,
    tx: &mut WriteTx,
    reported: &wire::Dispute,
) -> Result<MessageResult, Failure> {
    let dispute = match disputes::lock(tx.conn(), &reported.id).await? {
        Some(dispute) => dispute,
        None => match begin(payments, tx, reported).await? {
            Ok(dispute) => dispute,
            Err(result) => return Ok(result),
        },
    };
    tx.audit_in_org(dispute.org_id);
    let to = provider_status_read(&reported.status);
    let (kind, account, reason) = match (dispute.state, to) {
        (DisputeState::Open, DisputeState::Won) => {
            (PostingKind::HoldRelease, Account::Prepaid, "a dispute was won")
        }
        (DisputeState::Open, DisputeState::Lost) => {
            (PostingKind::Refund, Account::Refunds, "a dispute was lost")
        }
        (DisputeState::Won, DisputeState::Lost) | (DisputeState::Lost, DisputeState::Won) => {
            return Ok(MessageResult::Failed(format!(
                "the dispute is {} already and now {}",
                dispute.state, reported.status
            )));
        }
        _ => return Ok(MessageResult::Done("the dispute is known")),
    };
    let posting = Posting {
        org: dispute.org_id,
        kind,
        reference: Some(reported.id.clone()),
        reason: reason.to_owned(),
        corrects: None,
        lines: vec![
            Line::new(Account::Disputed, -dispute.amount_minor),
            Line::new(account, dispute.amount_minor),
        ],
    };
    if billing::api::post(&payments.billing, tx, posting).await?.is_none() {
        return Ok(MessageResult::Failed(format!("{} was booked before, for something else", reported.id)));
    }
    let now = tx.db().ambient().now();
    let after = disputes::close(tx.conn(), dispute.id, to, now).await?;
    emit(tx, &after)?;
    changed(tx, "dispute", dispute.id, &dispute, &after)?;
    Ok(MessageResult::Done("the dispute is over"))
}

/// Freezes the amount. The balance may go below zero by it: what was used is owed.
async fn begin(
    payments: &Payments,
    tx: &mut WriteTx,
    reported: &wire::Dispute,
) -> Result<Result<Dispute, MessageResult>, Failure> {
    let Some(intent) = reported.payment_intent.as_ref().map(|intent| intent.id().to_owned()) else {
        return Ok(Err(MessageResult::Ignored("not about a payment of ours")));
    };
    let known = rows::id_of(tx.conn(), &intent).await?;
    let payment = match known {
        Some(id) => rows::lock(tx.conn(), id).await?,
        None => None,
    };
    let Some(payment) = payment else { return Ok(Err(MessageResult::Waits { intent })) };
    // Another message may have begun it while we waited for the lock.
    if let Some(dispute) = disputes::lock(tx.conn(), &reported.id).await? {
        return Ok(Ok(dispute));
    }
    if !reported.currency.eq_ignore_ascii_case(&payment.currency) || reported.amount <= 0 {
        let why = format!("a dispute about {} {} cannot be booked", reported.amount, reported.currency);
        return Ok(Err(MessageResult::Failed(why)));
    }
    let posting = Posting {
        org: payment.org_id,
        kind: PostingKind::Hold,
        reference: Some(reported.id.clone()),
        reason: "a payment is disputed".to_owned(),
        corrects: None,
        lines: vec![
            Line::new(Account::Prepaid, -reported.amount),
            Line::new(Account::Disputed, reported.amount),
        ],
    };
    let Some(posted) = billing::api::post(&payments.billing, tx, posting).await? else {
        return Ok(Err(MessageResult::Failed(format!(
            "{} was booked before, for something else",
            reported.id
        ))));
    };
    let ambient = tx.db().ambient().clone();
    let new = disputes::New {
        id: ambient.id(),
        org: payment.org_id,
        payment: payment.id,
        provider_dispute: &reported.id,
        amount_minor: reported.amount,
        currency: &payment.currency,
        reason: reported.reason.as_deref().unwrap_or("general"),
        posting: posted.id,
        now: ambient.now(),
    };
    let dispute = disputes::create(tx.conn(), new).await?;
    emit(tx, &dispute)?;
    created(tx, "dispute", dispute.id, &dispute)?;
    Ok(Ok(dispute))
}

fn emit(tx: &mut WriteTx, dispute: &Dispute) -> Result<(), Failure> {
    let event = PaymentDisputed {
        org_id: dispute.org_id,
        payment_id: dispute.payment_id,
        dispute_id: dispute.id,
        amount_minor: dispute.amount_minor,
        currency: dispute.currency.clone(),
        state: dispute.state,
    };
    Ok(tx.emit_for(dispute.org_id, None, &event)?)
}

pub async fn list(tx: &mut ReadTx, org: Option<OrgId>, page: &PageQuery) -> Result<Page<Dispute>, Failure> {
    Ok(page.page(disputes::list(tx.conn(), org, page).await?, |dispute| dispute.id.uuid()))
}

pub async fn get(tx: &mut ReadTx, org: Option<OrgId>, id: DisputeId) -> Result<Dispute, Failure> {
    Ok(found(disputes::get(tx.conn(), org, id).await?, "dispute")?)
}
