//! What may be asked: reads and writes by path.

use serde_json::{Value, json};

use crate::{
    checkout, disputes,
    fault::Fault,
    form::Params,
    invented, lists, payments, refunds,
    state::{Context, Kind, Object, State, object, text},
};

/// A path as its segments.
pub type Path<'a> = [&'a str];

pub fn write(
    state: &mut State,
    context: &Context<'_>,
    path: &Path<'_>,
    params: &Params,
) -> Result<Value, Fault> {
    let made = match path {
        ["v1", "customers"] => customer_create(state, context, params),
        ["v1", "customers", id] => customer_update(state, id, params),
        ["v1", "checkout", "sessions"] => checkout::create(state, context, params),
        ["v1", "checkout", "sessions", id, "expire"] => checkout::expire(state, context, id),
        ["v1", "refunds"] => refunds::create(state, context, params),
        ["sim", "checkout", id, "pay"] => payments::pay(state, context, id),
        ["sim", "checkout", id, "decline"] => payments::decline(state, context, id),
        ["sim", "charges", id, "dispute"] => disputes::open(state, context, id, params),
        ["sim", "disputes", id, "close"] => disputes::close(state, context, id, params),
        ["sim", "refunds", "next"] => refunds::decide_next(state, params),
        ["sim", "refunds", id, "fail"] => refunds::settle(state, context, id, "failed"),
        ["sim", "refunds", id, "succeed"] => refunds::settle(state, context, id, "succeeded"),
        ["sim", "payments", "invent"] => invented::invent(state, context, params),
        ["sim", "payments", id, "hide"] => invented::hide(state, id, true),
        ["sim", "payments", id, "show"] => invented::hide(state, id, false),
        ["sim", "events", id, "resend"] => invented::resend(state, context, id, params),
        _ => Err(Fault::no_such_path("POST", &format!("/{}", path.join("/")))),
    }?;
    lists::expand(state, made, params)
}

pub fn read(state: &State, path: &Path<'_>, params: &Params) -> Result<Value, Fault> {
    let (kind, id) = match path {
        ["v1", "customers", rest @ ..] => (Kind::Customer, rest),
        ["v1", "checkout", "sessions", rest @ ..] => (Kind::Session, rest),
        ["v1", "payment_intents", rest @ ..] => (Kind::Intent, rest),
        ["v1", "charges", rest @ ..] => (Kind::Charge, rest),
        ["v1", "refunds", rest @ ..] => (Kind::Refund, rest),
        ["v1", "disputes", rest @ ..] => (Kind::Dispute, rest),
        ["v1", "events", rest @ ..] => (Kind::Event, rest),
        ["sim", "deliveries"] => return Ok(invented::deliveries(state)),
        _ => return Err(Fault::no_such_path("GET", &format!("/{}", path.join("/")))),
    };
    match id {
        [] => lists::list(state, kind, &format!("/{}", path.join("/")), params),
        [id] => lists::expand(state, state.find(kind, id)?.clone(), params),
        _ => Err(Fault::no_such_path("GET", &format!("/{}", path.join("/")))),
    }
}

fn customer_create(state: &mut State, context: &Context<'_>, params: &Params) -> Result<Object, Fault> {
    params.only(&["address", "description", "email", "metadata", "name", "phone"])?;
    state.has_room()?;
    let customer = object(json!({
        "id": context.id(Kind::Customer), "object": "customer", "address": null, "balance": 0, "created": context.now,
        "currency": null, "default_source": null, "delinquent": false, "description": params.text(&["description"]),
        "discount": null, "email": params.text(&["email"]), "livemode": false, "metadata": params.set(&["metadata"]),
        "name": params.text(&["name"]), "phone": params.text(&["phone"]), "preferred_locales": [], "shipping": null,
        "tax_exempt": "none",
    }));
    state.add(Kind::Customer, customer.clone());
    state.emit(context, "customer.created", &customer);
    Ok(customer)
}

fn customer_update(state: &mut State, id: &str, params: &Params) -> Result<Object, Fault> {
    params.only(&["address", "description", "email", "metadata", "name", "phone"])?;
    let customer = state.find_mut(Kind::Customer, id)?;
    for key in ["description", "email", "name", "phone"] {
        if let Some(value) = params.text(&[key]) {
            customer.insert(key.to_owned(), value.into());
        }
    }
    let mut metadata = customer.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    metadata.extend(params.set(&["metadata"]));
    customer.insert("metadata".to_owned(), metadata.into());
    Ok(customer.clone())
}

/// The payment that an id of a charge, a payment intent or a checkout session means: its charge.
pub fn charge_of(state: &State, id: &str) -> Result<Object, Fault> {
    match Kind::from_id(id) {
        Some(Kind::Intent) => {
            let charge = text(state.find(Kind::Intent, id)?, "latest_charge");
            Ok(state.find(Kind::Charge, charge)?.clone())
        }
        Some(Kind::Session) => charge_of(state, text(state.find(Kind::Session, id)?, "payment_intent")),
        _ => Ok(state.find(Kind::Charge, id)?.clone()),
    }
}
