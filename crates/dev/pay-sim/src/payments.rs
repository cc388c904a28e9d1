//! Paying a session: a payment intent, a charge, and what is told about them.

use serde_json::{Value, json};

use crate::{
    checkout::shown,
    fault::Fault,
    state::{Context, Kind, Object, State, number, object, random_text, text},
};

/// What a payment intent is made of.
pub struct Payment<'a> {
    pub amount: i64,
    pub currency: &'a str,
    pub customer: Value,
    pub metadata: Value,
    pub description: Value,
    pub created: i64,
}

/// The card is good: the session is complete.
pub fn pay(state: &mut State, context: &Context<'_>, id: &str) -> Result<Object, Fault> {
    let session = open_session(state, context, id)?;
    let (intent, charge) = attempt(state, context, &session, None);
    let session = state.find_mut(Kind::Session, id)?;
    session.insert("payment_intent".to_owned(), text(&intent, "id").into());
    session.insert("payment_status".to_owned(), "paid".into());
    session.insert("status".to_owned(), "complete".into());
    session.insert("url".to_owned(), Value::Null);
    let session = shown(session);
    state.emit(context, "charge.succeeded", &charge);
    state.emit(context, "payment_intent.succeeded", &intent);
    state.emit(context, "checkout.session.completed", &session);
    Ok(session)
}

/// The card is refused: the session stays open for another one.
pub fn decline(state: &mut State, context: &Context<'_>, id: &str) -> Result<Object, Fault> {
    let session = open_session(state, context, id)?;
    let (intent, charge) = attempt(state, context, &session, Some("card_declined"));
    let session = state.find_mut(Kind::Session, id)?;
    session.insert("payment_intent".to_owned(), text(&intent, "id").into());
    let session = shown(session);
    state.emit(context, "charge.failed", &charge);
    state.emit(context, "payment_intent.payment_failed", &intent);
    Ok(session)
}

fn open_session(state: &State, context: &Context<'_>, id: &str) -> Result<Object, Fault> {
    state.has_room()?;
    let session = state.find(Kind::Session, id)?;
    let status = text(session, "status");
    if status != "open" || number(session, "expires_at") <= context.now {
        let word = if status == "open" { "expired" } else { status };
        return Err(Fault::invalid(
            "session",
            format!("This checkout is {word}; nothing more can be paid with it."),
        ));
    }
    Ok(session.clone())
}

/// One try with a card. A session has one payment intent, however often it is tried.
fn attempt(
    state: &mut State,
    context: &Context<'_>,
    session: &Object,
    failure: Option<&str>,
) -> (Object, Object) {
    let data =
        |key: &str| session.get("sim_data").and_then(|data| data.get(key)).cloned().unwrap_or_default();
    let payment = Payment {
        amount: number(session, "amount_total"),
        currency: text(session, "currency"),
        customer: session.get("customer").cloned().unwrap_or_default(),
        metadata: data("metadata"),
        description: data("description"),
        created: context.now,
    };
    let former = text(session, "payment_intent");
    let id = if former.is_empty() { context.id(Kind::Intent) } else { former.to_owned() };
    let made = make(context, &id, &payment, failure);
    match state.find_mut(Kind::Intent, &id) {
        Ok(known) => known.clone_from(&made.0),
        Err(_) => state.add(Kind::Intent, made.0.clone()),
    }
    state.add(Kind::Charge, made.1.clone());
    made
}

/// A payment intent and its charge.
pub fn make(
    context: &Context<'_>,
    id: &str,
    payment: &Payment<'_>,
    failure: Option<&str>,
) -> (Object, Object) {
    let charge_id = context.id(Kind::Charge);
    let paid = failure.is_none();
    let received = if paid { payment.amount } else { 0 };
    let error = failure.map(|code| {
        json!({ "charge": charge_id, "code": code, "decline_code": "generic_decline", "message": "Your card was declined.", "type": "card_error" })
    });
    let transaction = paid.then(|| format!("txn_{}", random_text(context.ambient, 24)));
    let method = format!("pm_{}", random_text(context.ambient, 24));
    let intent = json!({
        "id": id, "object": "payment_intent", "amount": payment.amount, "amount_capturable": 0,
        "amount_received": received, "canceled_at": null, "cancellation_reason": null, "capture_method": "automatic_async",
        "confirmation_method": "automatic", "created": payment.created, "currency": payment.currency,
        "customer": payment.customer, "description": payment.description, "last_payment_error": error,
        "latest_charge": charge_id, "livemode": false, "metadata": payment.metadata, "payment_method": method,
        "payment_method_types": ["card"], "status": if paid { "succeeded" } else { "requires_payment_method" },
    });
    let charge = json!({
        "id": charge_id, "object": "charge", "amount": payment.amount, "amount_captured": received,
        "amount_refunded": 0, "balance_transaction": transaction, "captured": paid, "created": payment.created,
        "currency": payment.currency, "customer": payment.customer, "description": payment.description, "disputed": false,
        "failure_code": failure, "failure_message": failure.map(|_| "Your card was declined."), "livemode": false,
        "metadata": payment.metadata, "paid": paid, "payment_intent": id, "payment_method": method,
        "payment_method_details": { "card": { "brand": "visa", "exp_month": 12, "exp_year": 2034, "funding": "credit",
            "last4": if paid { "4242" } else { "0002" } }, "type": "card" },
        "receipt_url": null, "refunded": false, "status": if paid { "succeeded" } else { "failed" },
    });
    (object(intent), object(charge))
}
