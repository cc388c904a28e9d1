//! Checkout sessions: open → complete (paid) | expired.

use serde_json::{Value, json};
use url::Url;

use crate::{
    fault::Fault,
    form::Params,
    state::{Context, Kind, Object, State, number, object, text},
};

const KNOWN: &[&str] = &[
    "allow_promotion_codes",
    "automatic_tax",
    "billing_address_collection",
    "cancel_url",
    "client_reference_id",
    "currency",
    "custom_text",
    "customer",
    "customer_creation",
    "customer_email",
    "customer_update",
    "expires_at",
    "invoice_creation",
    "line_items",
    "locale",
    "metadata",
    "mode",
    "payment_intent_data",
    "payment_method_types",
    "submit_type",
    "success_url",
    "ui_mode",
];
const DAY_SECONDS: i64 = 24 * 3600;
const SHORTEST_SECONDS: i64 = 30 * 60;
/// What the real provider takes in one payment, in minor units.
const AMOUNTS: std::ops::RangeInclusive<i64> = 50..=99_999_999;

pub fn create(state: &mut State, context: &Context<'_>, params: &Params) -> Result<Object, Fault> {
    params.only(KNOWN)?;
    state.has_room()?;
    if params.required(&["mode"])? != "payment" {
        return Err(Fault::invalid("mode", "The simulated provider has mode=payment only."));
    }
    let success_url = address(params, "success_url")?.ok_or_else(|| Fault::missing("success_url"))?;
    let cancel_url = address(params, "cancel_url")?;
    let customer = params.text(&["customer"]);
    let known = customer.map(|id| state.find(Kind::Customer, id)).transpose()?;
    let email = known.and_then(|customer| customer.get("email")).cloned();
    let email = email.or_else(|| params.text(&["customer_email"]).map(Value::from)).unwrap_or_default();
    let (currency, amount, items) = total(params)?;
    let expires_at = params.number(&["expires_at"])?.unwrap_or(context.now + DAY_SECONDS);
    // A minute less than half an hour passes: clocks differ.
    if !(context.now + SHORTEST_SECONDS - 60..=context.now + DAY_SECONDS).contains(&expires_at) {
        return Err(Fault::invalid("expires_at", "expires_at must be 30 minutes to 24 hours from now."));
    }
    let id = context.id(Kind::Session);
    let url = format!("{}/c/pay/{id}", context.public_url);
    let session = object(json!({
        "id": id, "object": "checkout.session", "amount_subtotal": amount, "amount_total": amount,
        "automatic_tax": { "enabled": false, "status": null }, "cancel_url": cancel_url,
        "client_reference_id": params.text(&["client_reference_id"]), "created": context.now, "currency": currency,
        "customer": customer, "customer_details": { "email": email, "name": null },
        "customer_email": params.text(&["customer_email"]), "expires_at": expires_at, "livemode": false, "locale": null,
        "metadata": params.set(&["metadata"]), "mode": "payment", "payment_intent": null,
        "payment_method_types": ["card"], "payment_status": "unpaid", "status": "open", "success_url": success_url,
        "ui_mode": "hosted", "url": url,
    }));
    let mut kept = session.clone();
    // Not shown by the real provider either; taken out again by `shown`.
    let data = json!({
        "metadata": params.set(&["payment_intent_data", "metadata"]), "items": items,
        "description": params.text(&["payment_intent_data", "description"]),
    });
    kept.insert("sim_data".to_owned(), data);
    state.add(Kind::Session, kept);
    Ok(session)
}

/// A session as clients see it.
pub fn shown(session: &Object) -> Object {
    let mut shown = session.clone();
    shown.shift_remove("sim_data");
    shown
}

fn address(params: &Params, key: &str) -> Result<Option<String>, Fault> {
    let Some(text) = params.text(&[key]) else { return Ok(None) };
    // The braces of {CHECKOUT_SESSION_ID} are no part of a URL, but of what is allowed here.
    let plain = Url::parse(&text.replace(['{', '}'], "_"));
    if plain.is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
        return Ok(Some(text.to_owned()));
    }
    Err(Fault::invalid(key, "Not a valid URL: it must begin with http:// or https://.").code("url_invalid"))
}

/// Currency, sum, and the names of what is paid for.
fn total(params: &Params) -> Result<(String, i64, Vec<String>), Fault> {
    let (mut currency, mut sum, mut names) = (None::<String>, 0_i64, Vec::new());
    for item in params.keys(&["line_items"]) {
        let price = ["line_items", item, "price_data"];
        let at = |last: &'static str| [price[0], price[1], price[2], last];
        let own = params.required(&at("currency"))?.to_lowercase();
        if own.len() != 3 || !own.bytes().all(|letter| letter.is_ascii_lowercase()) {
            return Err(Fault::invalid("line_items", format!("Invalid currency: {own}.")));
        }
        if currency.as_ref().is_some_and(|other| *other != own) {
            return Err(Fault::invalid("line_items", "All items must have one currency."));
        }
        let unit = params.number(&at("unit_amount"))?.ok_or_else(|| Fault::missing("unit_amount"))?;
        let quantity = params.number(&["line_items", item, "quantity"])?.unwrap_or(1);
        let cost = unit.checked_mul(quantity).filter(|_| unit >= 0 && quantity > 0);
        sum = cost
            .and_then(|cost| sum.checked_add(cost))
            .ok_or_else(|| Fault::invalid("line_items", "Amounts must be positive and not too large."))?;
        names.push(params.required(&[price[0], price[1], price[2], "product_data", "name"])?.to_owned());
        currency = Some(own);
    }
    let currency = currency.ok_or_else(|| Fault::missing("line_items"))?;
    if !AMOUNTS.contains(&sum) {
        let code = if sum < *AMOUNTS.start() { "amount_too_small" } else { "amount_too_large" };
        let message = format!("The total must be from {} to {} minor units.", AMOUNTS.start(), AMOUNTS.end());
        return Err(Fault::invalid("line_items", message).code(code));
    }
    Ok((currency, sum, names))
}

pub fn expire(state: &mut State, context: &Context<'_>, id: &str) -> Result<Object, Fault> {
    let session = state.find_mut(Kind::Session, id)?;
    let status = text(session, "status");
    if status != "open" {
        let message = format!("Only a session with status open can be expired; this one is {status}.");
        return Err(Fault::invalid("session", message));
    }
    session.insert("status".to_owned(), "expired".into());
    session.insert("url".to_owned(), Value::Null);
    let session = shown(session);
    state.emit(context, "checkout.session.expired", &session);
    Ok(session)
}

/// Ends the sessions whose time is over.
pub fn expire_due(state: &mut State, context: &Context<'_>) -> Result<usize, Fault> {
    let due = due(state, context.now);
    for id in &due {
        expire(state, context, id)?;
    }
    Ok(due.len())
}

pub fn due(state: &State, now: i64) -> Vec<String> {
    let open = state.all(Kind::Session).iter().filter(|session| text(session, "status") == "open");
    open.filter(|session| number(session, "expires_at") <= now)
        .map(|session| text(session, "id").to_owned())
        .collect()
}
