//! What only a simulation can do: lists that lie, payments that nobody made, messages sent again.

use serde_json::{Value, json};

use crate::{
    fault::Fault,
    form::Params,
    payments::{Payment, make},
    state::{Context, Kind, Object, State, object, text},
};

const MAX_COPIES: i64 = 100;

/// A payment in the provider's lists of which no message was sent.
pub fn invent(state: &mut State, context: &Context<'_>, params: &Params) -> Result<Object, Fault> {
    params.only(&["amount", "created", "currency", "customer", "metadata"])?;
    state.has_room()?;
    let payment = Payment {
        amount: params.number(&["amount"])?.ok_or_else(|| Fault::missing("amount"))?,
        currency: params.text(&["currency"]).unwrap_or("usd"),
        customer: params.text(&["customer"]).into(),
        metadata: params.set(&["metadata"]).into(),
        description: Value::Null,
        created: params.number(&["created"])?.unwrap_or(context.now),
    };
    let (intent, charge) = make(context, &context.id(Kind::Intent), &payment, None);
    state.add(Kind::Intent, intent.clone());
    state.add(Kind::Charge, charge);
    Ok(intent)
}

/// Takes a payment out of the lists, or puts it back.
pub fn hide(state: &mut State, id: &str, hidden: bool) -> Result<Object, Fault> {
    let intent = state.find(Kind::Intent, id)?.clone();
    for id in [id, text(&intent, "latest_charge")] {
        if hidden {
            state.hidden.insert(id.to_owned());
        } else {
            state.hidden.remove(id);
        }
    }
    Ok(intent)
}

/// Sends an event again, `copies` times.
pub fn resend(state: &mut State, context: &Context<'_>, id: &str, params: &Params) -> Result<Object, Fault> {
    let event = state.find(Kind::Event, id)?.clone();
    let copies = params.number(&["copies"])?.unwrap_or(1);
    if !(1..=MAX_COPIES).contains(&copies) || context.copies == 0 {
        return Err(Fault::invalid(
            "copies",
            format!("copies is 1 to {MAX_COPIES}, and --webhook-url must be set."),
        ));
    }
    for _ in 0..copies {
        state.deliver(id, (context.first_due_ms)());
    }
    Ok(event)
}

/// How the messages fare.
pub fn deliveries(state: &State) -> Value {
    let (given_up, waiting): (Vec<_>, Vec<_>) =
        state.deliveries.iter().partition(|delivery| delivery.given_up);
    Value::Object(object(json!({
        "object": "sim.deliveries", "delivered": state.delivered, "waiting": waiting.len(), "given_up": given_up,
        "oldest_waiting": waiting.first(),
    })))
}
