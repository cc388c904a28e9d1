//! Refunds: succeeded at once unless `/sim/refunds/next` says otherwise; a succeeded one may still fail later, as when
//! the card is closed.

use serde_json::{Value, json};

use crate::{
    api::charge_of,
    fault::Fault,
    form::Params,
    state::{Context, Kind, Object, State, number, object, text},
};

pub fn create(state: &mut State, context: &Context<'_>, params: &Params) -> Result<Object, Fault> {
    params.only(&["amount", "charge", "metadata", "payment_intent", "reason"])?;
    state.has_room()?;
    let of = params.text(&["payment_intent"]).or(params.text(&["charge"]));
    let charge = charge_of(state, of.ok_or_else(|| Fault::missing("payment_intent"))?)?;
    let left = number(&charge, "amount") - number(&charge, "amount_refunded");
    let amount = params.number(&["amount"])?.unwrap_or(left);
    if text(&charge, "status") != "succeeded" {
        return Err(Fault::invalid("charge", "This charge has not succeeded; there is nothing to refund."));
    }
    if charge.get("disputed").and_then(Value::as_bool) == Some(true) {
        let message = "This charge is disputed; it cannot be refunded.";
        return Err(Fault::invalid("charge", message).code("charge_disputed"));
    }
    if left == 0 {
        let message = format!("Charge {} has already been refunded.", text(&charge, "id"));
        return Err(Fault::invalid("charge", message).code("charge_already_refunded"));
    }
    if !(1..=left).contains(&amount) {
        let message = format!("The refund amount must be from 1 to {left}, what is left of the charge.");
        return Err(Fault::invalid("amount", message).code("amount_too_large"));
    }
    let reason = params.text(&["reason"]);
    if reason.is_some_and(|reason| !["duplicate", "fraudulent", "requested_by_customer"].contains(&reason)) {
        let message = "Invalid reason: it is duplicate, fraudulent or requested_by_customer.";
        return Err(Fault::invalid("reason", message));
    }
    let status = state.next_refund.take().unwrap_or_else(|| "succeeded".to_owned());
    let failure = (status == "failed").then_some("expired_or_canceled_card");
    let refund = object(json!({
        "id": context.id(Kind::Refund), "object": "refund", "amount": amount, "balance_transaction": null,
        "charge": text(&charge, "id"), "created": context.now, "currency": text(&charge, "currency"),
        "failure_reason": failure, "metadata": params.set(&["metadata"]),
        "payment_intent": charge.get("payment_intent"), "reason": reason, "receipt_number": null, "status": status,
    }));
    state.add(Kind::Refund, refund.clone());
    state.emit(context, "refund.created", &refund);
    if failure.is_some() {
        state.emit(context, "refund.failed", &refund);
    } else {
        let charge = add_refunded(state, &refund, amount)?;
        state.emit(context, "charge.refunded", &charge);
    }
    Ok(refund)
}

fn add_refunded(state: &mut State, refund: &Object, amount: i64) -> Result<Object, Fault> {
    let charge = state.find_mut(Kind::Charge, text(refund, "charge"))?;
    let refunded = number(charge, "amount_refunded") + amount;
    let all = refunded == number(charge, "amount");
    charge.insert("amount_refunded".to_owned(), refunded.into());
    charge.insert("refunded".to_owned(), all.into());
    Ok(charge.clone())
}

/// Says what the next refund becomes: `status=pending` or `failed`.
pub fn decide_next(state: &mut State, params: &Params) -> Result<Object, Fault> {
    let status = params.required(&["status"])?;
    if !["pending", "failed", "succeeded"].contains(&status) {
        return Err(Fault::invalid("status", "status is pending, failed or succeeded."));
    }
    state.next_refund = Some(status.to_owned());
    Ok(object(json!({ "object": "sim.next_refund", "status": status })))
}

/// Ends a refund, or brings back one that had succeeded.
pub fn settle(state: &mut State, context: &Context<'_>, id: &str, to: &str) -> Result<Object, Fault> {
    let refund = state.find_mut(Kind::Refund, id)?;
    let from = text(refund, "status").to_owned();
    if !matches!((from.as_str(), to), ("pending", _) | ("succeeded", "failed")) {
        return Err(Fault::invalid("status", format!("A refund that is {from} cannot become {to}.")));
    }
    refund.insert("status".to_owned(), to.into());
    if to == "failed" {
        refund.insert("failure_reason".to_owned(), "expired_or_canceled_card".into());
    }
    let refund = refund.clone();
    if to == "failed" {
        add_refunded(state, &refund, -number(&refund, "amount"))?;
    }
    state.emit(context, "refund.updated", &refund);
    state.emit(context, "charge.refund.updated", &refund);
    if to == "failed" {
        state.emit(context, "refund.failed", &refund);
    }
    Ok(refund)
}
