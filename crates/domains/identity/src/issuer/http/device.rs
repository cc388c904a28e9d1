//! `/auth/device_authorization` for the device, `/auth/device` for the person who lets it in.

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::StatusCode;
use serde_json::json;

use super::{
    cx::{Cx, PageFailure, redirect, with_continue},
    page::{Button, Field, Page},
};
use crate::issuer::{
    Issuer,
    failure::TokenError,
    model::{self, Refusal},
    sessions::Browser,
};

pub(super) async fn authorization(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, TokenError> {
    let client_id = cx.form.text("client_id");
    if issuer.client(client_id).is_none() {
        return Err(Refusal::InvalidClient("The client is unknown.").into());
    }
    let scope = model::granted_scope(cx.form.text("scope"));
    let (device_code, user_code) = issuer.device_create(client_id, &scope, &cx.origin).await?;
    let address = format!("{}/auth/device", issuer.0.config.public_url);
    let answer = axum::Json(json!({
        "device_code": device_code.expose(),
        "user_code": user_code,
        "verification_uri": address,
        "verification_uri_complete": format!("{address}?user_code={user_code}"),
        "expires_in": model::DEVICE_CODE_LIFE.num_seconds(),
        "interval": model::DEVICE_POLL_SECONDS,
    }));
    Ok(answer.into_response())
}

fn code_page(cx: &Cx, error: Option<&str>) -> Response {
    let page = Page {
        title: "Sign in a device",
        error,
        text: vec!["Enter the code that the device shows.".to_owned()],
        action: Some("/auth/device"),
        by_get: true,
        fields: vec![
            Field::new("Code", "user_code", "text", "one-time-code").value(cx.query.text("user_code")),
        ],
        buttons: vec![Button { text: "Go on", decision: "", plain: false }],
        ..Page::default()
    };
    cx.page(if error.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK }, page)
}

const UNKNOWN: &str = "The code is unknown or has expired. Start again on the device.";

/// The browser, or the way to sign in and come back.
async fn signed_in(cx: &Cx) -> Result<Result<Browser, Response>, PageFailure> {
    let typed = model::read_user_code(cx.form.get("user_code").unwrap_or(cx.query.text("user_code")));
    let here = typed.map_or("/auth/device".to_owned(), |code| format!("/auth/device?user_code={code}"));
    Ok(match cx.browser().await? {
        Some(browser) if browser.account.must_change_password => {
            Err(redirect(&with_continue("/auth/password", &here)))
        }
        Some(browser) => Ok(browser),
        None => Err(redirect(&with_continue("/auth/login", &here))),
    })
}

pub(super) async fn form(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    let browser = match signed_in(&cx).await? {
        Ok(browser) => browser,
        Err(elsewhere) => return Ok(elsewhere),
    };
    let Some(typed) = cx.query.get("user_code") else { return Ok(code_page(&cx, None)) };
    let Some(code) = model::read_user_code(typed) else { return Ok(code_page(&cx, Some(UNKNOWN))) };
    let Some(waiting) = issuer.device_waiting(&code).await? else {
        return Ok(code_page(&cx, Some(UNKNOWN)));
    };
    let program = issuer.client(&waiting.client_id).map_or("A program", |c| c.name);
    let from = waiting.source_ip.as_deref().unwrap_or("an unknown address");
    let page = Page {
        title: "Approve this device?",
        text: vec![
            format!(
                "{program} at {from} requested access as {1} at {0} UTC.",
                waiting.created_at.format("%H:%M:%S"),
                browser.account.email
            ),
            "Approve only if you started this yourself and the device shows this code:".to_owned(),
        ],
        code: Some(&code),
        action: Some("/auth/device"),
        hidden: vec![("user_code", code.clone())],
        buttons: vec![
            Button { text: "Approve", decision: "approve", plain: false },
            Button { text: "Deny", decision: "deny", plain: true },
        ],
        ..Page::default()
    };
    Ok(cx.page(StatusCode::OK, page))
}

pub(super) async fn submit(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    if !cx.form_is_ours() {
        return Ok(cx.stale_form());
    }
    let browser = match signed_in(&cx).await? {
        Ok(browser) => browser,
        Err(elsewhere) => return Ok(elsewhere),
    };
    let approve = cx.form.text("decision") == "approve";
    let done = match model::read_user_code(cx.form.text("user_code")) {
        Some(code) => issuer.device_decide(&code, &browser, approve, &cx.origin).await?,
        None => false,
    };
    if !done {
        return Ok(code_page(&cx, Some(UNKNOWN)));
    }
    let (title, text) = if approve {
        ("The device is signed in", "You can close this page and continue on the device.")
    } else {
        ("The device was denied", "The device is not signed in. You can close this page.")
    };
    Ok(cx.page(StatusCode::OK, Page { title, text: vec![text.to_owned()], ..Page::default() }))
}
