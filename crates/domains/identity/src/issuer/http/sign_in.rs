//! `/auth/login` and `/auth/logout`.

use axum::{extract::State, response::Response};
use http::StatusCode;

use super::{
    cx::{Cx, PageFailure, redirect, with_continue},
    page::{Button, Field, Page},
};
use crate::issuer::{Issuer, accounts::WRONG};

fn sign_in_page(cx: &Cx, error: Option<&str>, email: &str) -> Response {
    let continue_to = cx.continue_to().unwrap_or_default();
    let sign_up = if continue_to.is_empty() {
        "/auth/signup".to_owned()
    } else {
        with_continue("/auth/signup", continue_to)
    };
    let page = Page {
        title: "Sign in",
        error,
        action: Some("/auth/login"),
        hidden: vec![("continue", continue_to.to_owned())],
        fields: vec![Field::email(email), Field::password("Password", "password", "current-password")],
        buttons: vec![Button { text: "Sign in", decision: "", plain: false }],
        links: vec![(sign_up, "I have no account yet")],
        leads_to: cx.continue_origin(),
        ..Page::default()
    };
    let status = if error.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    cx.page(status, page)
}

pub(super) async fn form(State(_): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    if cx.continue_to().is_none()
        && let Some(browser) = cx.browser().await?
    {
        let page = Page {
            title: "You are signed in",
            text: vec![format!("You are signed in as {}.", browser.account.email)],
            links: vec![
                ("/auth/password".to_owned(), "Change the password"),
                ("/auth/device".to_owned(), "Sign in a device"),
                ("/auth/logout".to_owned(), "Sign out"),
            ],
            ..Page::default()
        };
        return Ok(cx.page(StatusCode::OK, page));
    }
    Ok(sign_in_page(&cx, None, cx.query.text("login_hint")))
}

pub(super) async fn submit(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    if !cx.form_is_ours() {
        return Ok(cx.stale_form());
    }
    let email = cx.form.text("email").trim().to_owned();
    match issuer.sign_in(&email, cx.form.secret("password"), &cx.origin).await? {
        Some(cookie) => Ok(cx.redirect_with_session(&cx.after_signing_in(&cookie), Some(&cookie))),
        None => Ok(sign_in_page(&cx, Some(WRONG), &email)),
    }
}

/// Where to go after signing out, when a client of ours lives there.
fn after(cx: &Cx) -> Option<&str> {
    let name = "post_logout_redirect_uri";
    let wanted = cx.form.get(name).or(cx.query.get(name))?;
    cx.issuer.0.clients.iter().any(|c| c.lives_at(wanted)).then_some(wanted)
}

/// Signing out is asked for by a form, so that no other page can do it.
pub(super) async fn logout_form(State(_): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    let after = after(&cx).unwrap_or_default();
    if cx.browser().await?.is_none() {
        return Ok(redirect(if after.is_empty() { "/auth/login" } else { after }));
    }
    let page = Page {
        title: "Sign out",
        text: vec!["You will have to sign in again in this browser.".to_owned()],
        action: Some("/auth/logout"),
        hidden: vec![("post_logout_redirect_uri", after.to_owned())],
        buttons: vec![Button { text: "Sign out", decision: "", plain: false }],
        leads_to: crate::issuer::model::origin_of(after),
        ..Page::default()
    };
    Ok(cx.page(StatusCode::OK, page))
}

pub(super) async fn logout_submit(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    if !cx.form_is_ours() {
        return Ok(cx.stale_form());
    }
    if let Some(browser) = cx.browser().await? {
        issuer.sign_out(&browser, &cx.origin).await?;
    }
    Ok(cx.redirect_with_session(after(&cx).unwrap_or("/auth/login"), None))
}
