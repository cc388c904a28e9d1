//! `/auth/invitation`: where the mailed link of an invitation leads. Opening it changes nothing, because programs that
//! look through mail open links too; whoever is signed in joins by a button, and others make their account.

use axum::{extract::State, response::Response};
use http::StatusCode;
use kernel::{Failure, text::Name};

use super::{
    cx::{Cx, PageFailure, with_continue},
    page::{self, Button, Field, Page},
};
use crate::{
    issuer::{
        Issuer,
        accounts::{NOT_INVITED, SignUp, SignUpBy},
        sessions::Browser,
    },
    model::{invitation::OpenInvitation, invitation_link::MailedLink},
};

/// The link that was opened, from the address or from the form on the page.
fn link_shown(cx: &Cx) -> Option<MailedLink> {
    let params = if cx.form.get("proof").is_some() { &cx.form } else { &cx.query };
    let invitation_id = params.get("invitation")?.parse().ok()?;
    Some(MailedLink { invitation_id, proof: params.secret("proof") })
}

async fn open(cx: &Cx) -> Result<Option<(MailedLink, OpenInvitation)>, Failure> {
    let Some(link) = link_shown(cx) else { return Ok(None) };
    let open = cx.issuer.invitation_by_link(&link).await?;
    Ok(open.map(|open| (link, open)))
}

fn no_invitation() -> Response {
    page::error(StatusCode::BAD_REQUEST, NOT_INVITED)
}

fn hidden(link: &MailedLink) -> Vec<(&'static str, String)> {
    vec![("invitation", link.invitation_id.to_string()), ("proof", link.proof.expose().clone())]
}

fn offer(open: &OpenInvitation) -> String {
    let role = open.role.name();
    format!("{} invited {} to join {} as {role}.", open.invited_by, open.email, open.org_name)
}

fn status(error: Option<&str>) -> StatusCode {
    if error.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK }
}

/// People sign in elsewhere and have no page here: they accept with a program.
fn code_page(cx: &Cx, link: &MailedLink, open: &OpenInvitation) -> Response {
    let how = format!(
        "Sign in with the command line and run `gpuaas invitations accept {} --token-file -`; then paste this code:",
        open.id
    );
    let page = Page {
        title: "You are invited",
        text: vec![offer(open), how],
        code: Some(link.proof.expose()),
        ..Page::default()
    };
    cx.page(StatusCode::OK, page)
}

fn join_page(
    cx: &Cx,
    link: &MailedLink,
    open: &OpenInvitation,
    browser: &Browser,
    error: Option<&str>,
) -> Response {
    let page = Page {
        title: "You are invited",
        error,
        text: vec![offer(open), format!("You are signed in as {}.", browser.account.email)],
        action: Some("/auth/invitation"),
        hidden: hidden(link),
        buttons: vec![Button { text: "Join", decision: "join", plain: false }],
        links: vec![("/auth/logout".to_owned(), "Sign out, to join with another account")],
        ..Page::default()
    };
    cx.page(status(error), page)
}

fn sign_up_page(cx: &Cx, link: &MailedLink, open: &OpenInvitation, error: Option<&str>) -> Response {
    let page = Page {
        title: "You are invited",
        error,
        text: vec![offer(open)],
        action: Some("/auth/invitation"),
        hidden: hidden(link),
        fields: vec![
            Field::email(&open.email).read_only(),
            Field::new("Name", "name", "text", "name").value(cx.form.text("name")).optional(),
            Field::password("Password", "password", "new-password").hint("At least 12 characters."),
            Field::password("Password again", "again", "new-password"),
        ],
        buttons: vec![Button { text: "Create an account and join", decision: "sign_up", plain: false }],
        links: vec![(with_continue("/auth/login", link.path().expose()), "I have an account")],
        ..Page::default()
    };
    cx.page(status(error), page)
}

pub(super) async fn form(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    let Some((link, open)) = open(&cx).await? else { return Ok(no_invitation()) };
    if !issuer.0.config.people {
        return Ok(code_page(&cx, &link, &open));
    }
    Ok(match cx.browser().await? {
        Some(browser) => join_page(&cx, &link, &open, &browser, None),
        None => sign_up_page(&cx, &link, &open, None),
    })
}

pub(super) async fn submit(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    if !cx.form_is_ours() {
        return Ok(cx.stale_form());
    }
    let Some((link, open)) = open(&cx).await? else { return Ok(no_invitation()) };
    match (cx.form.text("decision"), cx.browser().await?) {
        ("join", Some(browser)) => join(&issuer, &cx, link, open, browser).await,
        (_, None) => sign_up(&issuer, &cx, link, open).await,
        (_, Some(browser)) => Ok(join_page(&cx, &link, &open, &browser, None)),
    }
}

async fn join(
    issuer: &Issuer,
    cx: &Cx,
    link: MailedLink,
    open: OpenInvitation,
    browser: Browser,
) -> Result<Response, PageFailure> {
    match issuer.invitation_join(&link, &browser, &cx.origin).await? {
        Ok(joined) => {
            let text = format!("You are now a member of {}.", joined.org_name);
            let links = vec![("/auth/login".to_owned(), "Go on")];
            Ok(cx.page(StatusCode::OK, Page { title: "Welcome", text: vec![text], links, ..Page::default() }))
        }
        Err(text) => Ok(join_page(cx, &link, &open, &browser, Some(text))),
    }
}

async fn sign_up(
    issuer: &Issuer,
    cx: &Cx,
    link: MailedLink,
    open: OpenInvitation,
) -> Result<Response, PageFailure> {
    let password = cx.form.secret("password");
    if password != cx.form.secret("again") {
        return Ok(sign_up_page(cx, &link, &open, Some("The passwords do not match.")));
    }
    let name = match cx.form.get("name").map(|text| Name::parse(text.trim())).transpose() {
        Ok(name) => name,
        Err(_) => {
            let error = "The name must be 1 to 80 printable characters.";
            return Ok(sign_up_page(cx, &link, &open, Some(error)));
        }
    };
    let form = SignUp { by: SignUpBy::Link(link.clone()), name, password };
    match issuer.sign_up(form, &cx.origin).await? {
        Ok(cookie) => Ok(cx.redirect_with_session("/auth/login", Some(&cookie))),
        Err(text) => Ok(sign_up_page(cx, &link, &open, Some(text))),
    }
}
