//! Disputes: a card holder takes money back, and the bank decides.

use serde_json::{Value, json};

use crate::{
    api::charge_of,
    fault::Fault,
    form::Params,
    state::{Context, Kind, Object, State, number, object, text},
};

const ANSWER_SECONDS: i64 = 7 * 24 * 3600;

pub fn open(state: &mut State, context: &Context<'_>, id: &str, params: &Params) -> Result<Object, Fault> {
    params.only(&["amount", "reason"])?;
    state.has_room()?;
    let charge = charge_of(state, id)?;
    let left = number(&charge, "amount") - number(&charge, "amount_refunded");
    let amount = params.number(&["amount"])?.unwrap_or(left);
    if charge.get("disputed").and_then(Value::as_bool) == Some(true) || !(1..=left).contains(&amount) {
        let message = format!("A charge is disputed once, with an amount from 1 to {left}.");
        return Err(Fault::invalid("amount", message));
    }
    let dispute = object(json!({
        "id": context.id(Kind::Dispute), "object": "dispute", "amount": amount, "balance_transactions": [],
        "charge": text(&charge, "id"), "created": context.now, "currency": text(&charge, "currency"), "evidence": {},
        "evidence_details": { "due_by": context.now + ANSWER_SECONDS, "has_evidence": false, "past_due": false,
            "submission_count": 0 },
        "is_charge_refundable": false, "livemode": false, "metadata": {},
        "payment_intent": charge.get("payment_intent"), "reason": params.text(&["reason"]).unwrap_or("fraudulent"),
        "status": "needs_response",
    }));
    state.add(Kind::Dispute, dispute.clone());
    let charge = state.find_mut(Kind::Charge, text(&charge, "id"))?;
    charge.insert("disputed".to_owned(), true.into());
    state.emit(context, "charge.dispute.created", &dispute);
    state.emit(context, "charge.dispute.funds_withdrawn", &dispute);
    Ok(dispute)
}

/// The bank's word: `status=won` or `lost`.
pub fn close(state: &mut State, context: &Context<'_>, id: &str, params: &Params) -> Result<Object, Fault> {
    let status = params.required(&["status"])?;
    if !["won", "lost"].contains(&status) {
        return Err(Fault::invalid("status", "status is won or lost."));
    }
    let dispute = state.find_mut(Kind::Dispute, id)?;
    if ["won", "lost"].contains(&text(dispute, "status")) {
        return Err(Fault::invalid("status", "This dispute is closed."));
    }
    dispute.insert("status".to_owned(), status.into());
    let dispute = dispute.clone();
    if status == "won" {
        state.emit(context, "charge.dispute.funds_reinstated", &dispute);
    }
    state.emit(context, "charge.dispute.closed", &dispute);
    Ok(dispute)
}
