//! `/auth/signup`: an account for somebody who was invited, or for anybody where that is allowed.

use axum::{extract::State, response::Response};
use http::StatusCode;
use kernel::text::{Email, Name};

use super::{
    cx::{Cx, PageFailure, with_continue},
    page::{Button, Field, Page},
};
use crate::issuer::{
    Issuer,
    accounts::{SignUp, SignUpBy},
};

fn sign_up_page(cx: &Cx, error: Option<&str>) -> Response {
    let (open, mailed) = (cx.issuer.0.config.self_signup, cx.issuer.0.links.is_mailed());
    let continue_to = cx.continue_to().unwrap_or_default();
    let sign_in = if continue_to.is_empty() {
        "/auth/login".to_owned()
    } else {
        with_continue("/auth/login", continue_to)
    };
    let invitation = Field::new("Invitation", "invitation", "password", "off");
    let mut fields = Vec::new();
    if open && mailed {
        fields.push(Field::email(cx.form.text("email")));
    } else if open {
        let hint = "Not needed with an invitation, which contains the address.";
        fields.push(Field::email(cx.form.text("email")).optional().hint(hint));
        fields.push(invitation.optional().hint("The token of your invitation, if you have one."));
    } else {
        fields.push(invitation.hint("Paste the token of your invitation."));
    }
    fields.push(Field::new("Name", "name", "text", "name").value(cx.form.text("name")).optional());
    let password = Field::password("Password", "password", "new-password");
    fields.push(password.hint("At least 12 characters."));
    fields.push(Field::password("Password again", "again", "new-password"));
    let text = match (open, mailed) {
        (true, true) => vec!["If you were invited, open the link in the invitation mail.".to_owned()],
        (true, false) => Vec::new(),
        (false, true) => vec![
            "You need an invitation to create an account: open the link in the invitation mail.".to_owned(),
        ],
        (false, false) => vec!["You need an invitation to create an account.".to_owned()],
    };
    let page = Page {
        title: "Create an account",
        error,
        text,
        // Where only a mailed link makes accounts, there is nothing to fill in here.
        action: (open || !mailed).then_some("/auth/signup"),
        hidden: vec![("continue", continue_to.to_owned())],
        fields,
        buttons: vec![Button { text: "Create account", decision: "", plain: false }],
        links: vec![(sign_in, "I have an account")],
        leads_to: cx.continue_origin(),
        ..Page::default()
    };
    cx.page(if error.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK }, page)
}

pub(super) async fn form(State(_): State<Issuer>, cx: Cx) -> Response {
    sign_up_page(&cx, None)
}

pub(super) async fn submit(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    if !cx.form_is_ours() {
        return Ok(cx.stale_form());
    }
    let password = cx.form.secret("password");
    if password != cx.form.secret("again") {
        return Ok(sign_up_page(&cx, Some("The passwords do not match.")));
    }
    let name = cx.form.get("name").map(|text| Name::parse(text.trim()));
    if let Some(Err(_)) = name {
        return Ok(sign_up_page(&cx, Some("The name must be 1 to 80 printable characters.")));
    }
    let email = cx.form.get("email").and_then(|text| Email::parse(text.trim()).ok());
    let by = match cx.form.get("invitation") {
        Some(token) => SignUpBy::Token(kernel::Secret::new(token.trim().to_owned())),
        None if issuer.0.config.self_signup && email.is_none() => {
            return Ok(sign_up_page(&cx, Some("The e-mail address is missing or invalid.")));
        }
        None => SignUpBy::Address(email),
    };
    let form = SignUp { by, name: name.and_then(Result::ok), password };
    match issuer.sign_up(form, &cx.origin).await? {
        Ok(cookie) => Ok(cx.redirect_with_session(&cx.after_signing_in(&cookie), Some(&cookie))),
        Err(text) => Ok(sign_up_page(&cx, Some(text))),
    }
}
