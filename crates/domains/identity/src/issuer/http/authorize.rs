//! `/auth/authorize`: a code for a signed-in browser, or the way to sign in.

use axum::{extract::State, response::Response};
use chrono::TimeDelta;
use http::StatusCode;

use super::{
    cx::{Cx, PageFailure, Params, redirect, with_continue},
    flow,
    page::{self, Button, Page},
};
use crate::issuer::{
    Issuer,
    grants::Asked,
    model::{self, Client},
    sessions::Browser,
};

const LONGEST_STATE: usize = 1024;

pub(super) async fn authorize(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    let params = if cx.form.get("client_id").is_some() { &cx.form } else { &cx.query };
    // Until client and redirect are known to belong together, nothing may be sent there.
    let Some(client) = issuer.client(params.text("client_id")) else {
        return Ok(page::error(StatusCode::BAD_REQUEST, "The client that requested the sign-in is unknown."));
    };
    let redirect_uri = params.text("redirect_uri");
    if !client.may_redirect_to(redirect_uri) {
        let text = "The redirect address is not registered for this client.";
        return Ok(page::error(StatusCode::BAD_REQUEST, text));
    }
    let state = params.get("state");
    let back = |answer: &[(&str, &str)]| {
        let issuer = issuer.0.config.public_url.as_str();
        let state = state.filter(|s| s.len() <= LONGEST_STATE).map(|s| ("state", s));
        let pairs = answer.iter().copied().chain(state).chain([("iss", issuer)]);
        let query = serde_urlencoded::to_string(pairs.collect::<Vec<_>>()).unwrap_or_default();
        let join = if redirect_uri.contains('?') { '&' } else { '?' };
        redirect(&format!("{redirect_uri}{join}{query}"))
    };
    let asked = match check(params, client.id) {
        Ok(asked) => asked,
        Err((code, text)) => return Ok(back(&[("error", code), ("error_description", text)])),
    };
    let prompt = params.text("prompt");
    let browser = match cx.browser().await? {
        // A fresh sign-in was asked for, and the one there is does not count.
        Some(_) if prompt.split(' ').any(|p| p == "login" || p == "select_account") => None,
        Some(browser) if is_too_old(params, issuer.now() - browser.auth_time) => None,
        browser => browser,
    };
    let ready = browser.filter(|b| !b.account.must_change_password || prompt != "none");
    let Some(browser) = ready else {
        if prompt == "none" {
            return Ok(back(&[("error", "login_required"), ("error_description", "No user is signed in.")]));
        }
        // What forced the sign-in is satisfied by it, and must not force another.
        return Ok(redirect(&with_continue("/auth/login", &flow::address(params))));
    };
    if browser.account.must_change_password {
        return Ok(redirect(&with_continue("/auth/password", &flow::address(params))));
    }
    if client.is_unproven() && !cx.signed_in_for(params) {
        let decision = cx.form.get("decision");
        match decision {
            Some(_) if !cx.form_is_ours() => return Ok(cx.stale_form()),
            Some("continue") => {}
            Some(_) => {
                return Ok(back(&[
                    ("error", "access_denied"),
                    ("error_description", "The request was denied."),
                ]));
            }
            None if prompt == "none" => {
                let text = "Consent of the user is required.";
                return Ok(back(&[("error", "interaction_required"), ("error_description", text)]));
            }
            None => return Ok(confirmation(&cx, client, &browser, params)),
        }
    }
    match issuer.code_create(&browser, &asked).await? {
        Some(code) => Ok(back(&[("code", code.expose())])),
        // The sign-in ended just now.
        None => Ok(redirect(&with_continue("/auth/login", &flow::address(params)))),
    }
}

fn confirmation(cx: &Cx, client: &Client, browser: &Browser, params: &Params) -> Response {
    let page = Page {
        title: "Continue?",
        text: vec![
            format!(
                "Continue as {} to {} ({}) on this computer?",
                browser.account.email, client.name, client.id
            ),
            "Continue only if you started this sign-in yourself.".to_owned(),
        ],
        action: Some("/auth/authorize"),
        hidden: params.only(&flow::ASKED),
        buttons: vec![
            Button { text: "Continue", decision: "continue", plain: false },
            Button { text: "Cancel", decision: "cancel", plain: true },
        ],
        leads_to: model::origin_of(params.text("redirect_uri")),
        ..Page::default()
    };
    cx.page(StatusCode::OK, page)
}

fn is_too_old(params: &Params, age: TimeDelta) -> bool {
    let limit = params.get("max_age").and_then(|text| text.parse::<u32>().ok());
    limit.is_some_and(|seconds| age > TimeDelta::seconds(seconds.into()))
}

fn check(params: &Params, client_id: &str) -> Result<Asked, (&'static str, &'static str)> {
    let invalid = |text| Err(("invalid_request", text));
    if params.get("request").is_some() || params.get("request_uri").is_some() {
        return Err((
            "request_not_supported",
            "Request objects are not supported; send the parameters directly.",
        ));
    }
    match params.get("response_type") {
        Some("code") => {}
        Some(_) => return Err(("unsupported_response_type", "Only response_type=code is supported.")),
        None => return invalid("response_type is missing."),
    }
    if params.get("response_mode").is_some_and(|mode| mode != "query") {
        return invalid("Only response_mode=query is supported.");
    }
    let challenge = params.text("code_challenge");
    if params.text("code_challenge_method") != "S256" || !model::is_code_challenge(challenge) {
        return invalid("PKCE is required: send code_challenge with code_challenge_method=S256.");
    }
    let nonce = params.get("nonce");
    if nonce.is_some_and(|n| n.len() > LONGEST_STATE) || params.text("state").len() > LONGEST_STATE {
        return invalid("state or nonce is too long.");
    }
    Ok(Asked {
        client_id: client_id.to_owned(),
        redirect_uri: params.text("redirect_uri").to_owned(),
        code_challenge: challenge.to_owned(),
        scope: model::granted_scope(params.text("scope")),
        nonce: nonce.map(str::to_owned),
    })
}
