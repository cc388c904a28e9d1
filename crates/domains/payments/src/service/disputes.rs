//! Disputes: frozen while they last, then free again or gone.

use billing::api::{Account, Line, Posting, PostingKind};
use kernel::{
    Failure, Page, PageQuery,
    ids::{DisputeId, OrgId},
};
use pg::{ReadTx, WriteTx, changed, created, found};

use super::Heard;
use crate::{
    Payments,
    model::{
        dispute::{Dispute, DisputeState, provider_status_read},
        events::PaymentDisputed,
        wire,
    },
    store::{disputes, payments as rows},
};

/// What the provider says of a dispute. Each message holds all of it, so whichever comes first begins it, and one that
/// comes late changes nothing.
pub async fn heard(payments: &Payments, tx: &mut WriteTx, told: &wire::Dispute) -> Result<Heard, Failure> {
    let dispute = match disputes::lock(tx.conn(), &told.id).await? {
        Some(dispute) => dispute,
        None => match begin(payments, tx, told).await? {
            Ok(dispute) => dispute,
            Err(heard) => return Ok(heard),
        },
    };
    tx.audit_in_org(dispute.org_id);
    let to = provider_status_read(&told.status);
    let (kind, account, reason) = match (dispute.state, to) {
        (DisputeState::Open, DisputeState::Won) => {
            (PostingKind::HoldRelease, Account::Prepaid, "a dispute was won")
        }
        (DisputeState::Open, DisputeState::Lost) => {
            (PostingKind::Refund, Account::Refunds, "a dispute was lost")
        }
        (DisputeState::Won, DisputeState::Lost) | (DisputeState::Lost, DisputeState::Won) => {
            return Ok(Heard::Failed(format!(
                "the dispute is {} already and now {}",
                dispute.state, told.status
            )));
        }
        _ => return Ok(Heard::Done("the dispute is known")),
    };
    let posting = Posting {
        org: dispute.org_id,
        kind,
        reference: Some(told.id.clone()),
        reason: reason.to_owned(),
        corrects: None,
        lines: vec![
            Line::new(Account::Disputed, -dispute.amount_minor),
            Line::new(account, dispute.amount_minor),
        ],
    };
    if billing::api::post(&payments.billing, tx, posting).await?.is_none() {
        return Ok(Heard::Failed(format!("{} was booked before, for something else", told.id)));
    }
    let now = tx.db().ambient().now();
    let after = disputes::close(tx.conn(), dispute.id, to, now).await?;
    emit(tx, &after)?;
    changed(tx, "dispute", dispute.id, &dispute, &after)?;
    Ok(Heard::Done("the dispute is over"))
}

/// Freezes the amount. The balance may go below zero by it: what was used is owed.
async fn begin(
    payments: &Payments,
    tx: &mut WriteTx,
    told: &wire::Dispute,
) -> Result<Result<Dispute, Heard>, Failure> {
    let Some(intent) = told.payment_intent.as_ref().map(|intent| intent.id().to_owned()) else {
        return Ok(Err(Heard::Ignored("not about a payment of ours")));
    };
    let known = rows::id_of(tx.conn(), &intent).await?;
    let payment = match known {
        Some(id) => rows::lock(tx.conn(), id).await?,
        None => None,
    };
    let Some(payment) = payment else { return Ok(Err(Heard::Waits { intent })) };
    // Another message may have begun it while we waited for the lock.
    if let Some(dispute) = disputes::lock(tx.conn(), &told.id).await? {
        return Ok(Ok(dispute));
    }
    if !told.currency.eq_ignore_ascii_case(&payment.currency) || told.amount <= 0 {
        let why = format!("a dispute about {} {} cannot be booked", told.amount, told.currency);
        return Ok(Err(Heard::Failed(why)));
    }
    let posting = Posting {
        org: payment.org_id,
        kind: PostingKind::Hold,
        reference: Some(told.id.clone()),
        reason: "a payment is disputed".to_owned(),
        corrects: None,
        lines: vec![Line::new(Account::Prepaid, -told.amount), Line::new(Account::Disputed, told.amount)],
    };
    let Some(posted) = billing::api::post(&payments.billing, tx, posting).await? else {
        return Ok(Err(Heard::Failed(format!("{} was booked before, for something else", told.id))));
    };
    let ambient = tx.db().ambient().clone();
    let new = disputes::New {
        id: ambient.id(),
        org: payment.org_id,
        payment: payment.id,
        provider_dispute: &told.id,
        amount_minor: told.amount,
        currency: &payment.currency,
        reason: told.reason.as_deref().unwrap_or("general"),
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
