//! `/auth/password`: changing it, by choice or because it must be.

use axum::{extract::State, response::Response};
use http::StatusCode;

use super::{
    cx::{Cx, PageFailure, redirect, with_continue},
    page::{Button, Field, Page},
};
use crate::issuer::{Issuer, sessions::Browser};

fn password_page(cx: &Cx, browser: &Browser, error: Option<&str>) -> Response {
    let why = if browser.account.must_change_password {
        "Choose a new password to continue."
    } else {
        "All other sessions of your account will be signed out."
    };
    let page = Page {
        title: "Change the password",
        error,
        text: vec![why.to_owned()],
        action: Some("/auth/password"),
        hidden: vec![("continue", cx.continue_to().unwrap_or_default().to_owned())],
        fields: vec![
            Field::password("Current password", "current", "current-password"),
            Field::password("New password", "new", "new-password").hint("At least 12 characters."),
            Field::password("New password again", "again", "new-password"),
        ],
        buttons: vec![Button { text: "Change the password", decision: "", plain: false }],
        leads_to: cx.continue_origin(),
        ..Page::default()
    };
    cx.page(if error.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK }, page)
}

pub(super) async fn form(State(_): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    match cx.browser().await? {
        Some(browser) => Ok(password_page(&cx, &browser, None)),
        None => Ok(redirect(&with_continue("/auth/login", "/auth/password"))),
    }
}

pub(super) async fn submit(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    if !cx.form_is_ours() {
        return Ok(cx.stale_form());
    }
    let Some(browser) = cx.browser().await? else {
        return Ok(redirect(&with_continue("/auth/login", "/auth/password")));
    };
    let (current, new) = (cx.form.secret("current"), cx.form.secret("new"));
    if new != cx.form.secret("again") {
        return Ok(password_page(&cx, &browser, Some("The new passwords do not match.")));
    }
    match issuer.change_password(&browser, current, new, &cx.origin).await? {
        Ok(cookie) => Ok(cx.redirect_with_session(&cx.after_signing_in(&cookie), Some(&cookie))),
        Err(text) => Ok(password_page(&cx, &browser, Some(text))),
    }
}
