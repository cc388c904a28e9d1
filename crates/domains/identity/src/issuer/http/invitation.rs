//! `/auth/invitation`: where the links of an invitation lead. Opening one changes nothing, because programs that look
//! through mail open links too: whoever is signed in with the invited address joins by a button, others sign in or make
//! their account first. The same address says afterwards what was joined.

use axum::{extract::State, response::Response};
use http::StatusCode;
use kernel::{Failure, text::Name};

use super::{
    cx::{Cx, PageFailure, redirect, with_continue},
    page::{self, Button, Field, Notice, Page, Section},
};
use crate::{
    issuer::{
        Issuer,
        accounts::{NOT_INVITED, SignUp, SignUpBy},
        invitations::NotJoined,
        sessions::Browser,
    },
    model::{
        invitation::{InvitedProject, OpenInvitation, SentInvitation, Standing},
        invitation_link::{LinkSecret, OpenedLink},
        role::MemberRole,
    },
};

const TITLE: &str = "You are invited";

/// The link that was opened, from the address or from the form on the page.
fn link_shown(cx: &Cx) -> Option<OpenedLink> {
    let params = if cx.form.get("invitation").is_some() { &cx.form } else { &cx.query };
    let invitation_id = params.get("invitation")?.parse().ok()?;
    let secret = match params.get("proof") {
        Some(_) => LinkSecret::Proof(params.secret("proof")),
        None => LinkSecret::Token(params.secret("token")),
    };
    Some(OpenedLink { invitation_id, secret })
}

async fn find(cx: &Cx) -> Result<Option<(OpenedLink, SentInvitation)>, Failure> {
    let Some(link) = link_shown(cx) else { return Ok(None) };
    let sent = cx.issuer.invitation_by_link(&link).await?;
    Ok(sent.map(|sent| (link, sent)))
}

fn no_invitation() -> Response {
    page::error(StatusCode::BAD_REQUEST, NOT_INVITED)
}

fn hidden(link: &OpenedLink) -> Vec<(&'static str, String)> {
    let (name, secret) = link.secret.parameter();
    vec![("invitation", link.invitation_id.to_string()), (name, secret.expose().clone())]
}

fn inviter(open: &OpenInvitation) -> &str {
    if open.invited_by.is_empty() { "Somebody" } else { &open.invited_by }
}

/// What is offered, to whom, and until when.
fn offer(open: &OpenInvitation) -> Vec<String> {
    let mut text = vec![format!("{} invited {} to join {}.", inviter(open), open.email, open.offer())];
    if let Some(InvitedProject { name: None, .. }) = &open.project {
        text.push("The project that the invitation was for has been deleted.".to_owned());
    }
    text.push(format!("The invitation expires on {}.", open.expires_at.format("%Y-%m-%d at %H:%M UTC")));
    text
}

fn status(error: Option<&str>) -> StatusCode {
    if error.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK }
}

/// People sign in elsewhere and have no page here: they accept with a program.
fn program_page(cx: &Cx, link: &OpenedLink, open: &OpenInvitation) -> Response {
    let server = &cx.issuer.0.config.public_url;
    let mut join = Section::new("Join with the command line");
    join.commands = vec![
        ("Sign in:", format!("gpuaas auth login --server {server}")),
        ("Join:", format!("gpuaas invitations accept {}", open.id)),
    ];
    let mut otherwise = Section::new("With another address");
    let (_, secret) = link.secret.parameter();
    otherwise.text = vec![format!(
        "If your sign-in does not say that {} is your address, join with the code of this invitation:",
        open.email
    )];
    otherwise.commands = vec![
        ("Run this command:", format!("gpuaas invitations accept {} --token-file -", open.id)),
        ("Paste the code, then press Ctrl+D:", secret.expose().clone()),
    ];
    let page = Page { title: TITLE, text: offer(open), sections: vec![join, otherwise], ..Page::default() };
    cx.page(StatusCode::OK, page)
}

fn join_page(
    cx: &Cx,
    link: &OpenedLink,
    open: &OpenInvitation,
    browser: &Browser,
    error: Option<&str>,
) -> Response {
    if !browser.account.email.eq_ignore_ascii_case(&open.email) {
        return other_account_page(cx, link, open, browser);
    }
    let mut text = offer(open);
    text.push(format!("You are signed in as {}.", browser.account.email));
    let page = Page {
        title: TITLE,
        error,
        text,
        action: Some("/auth/invitation"),
        hidden: hidden(link),
        buttons: vec![Button { text: "Join", decision: "join", plain: false }],
        ..Page::default()
    };
    cx.page(status(error), page)
}

fn other_account_page(cx: &Cx, link: &OpenedLink, open: &OpenInvitation, browser: &Browser) -> Response {
    let error =
        format!("The invitation is for {}, and you are signed in as {}.", open.email, browser.account.email);
    let again = format!("Sign out and continue as {}", open.email);
    let mut text = offer(open);
    let other = "To join with the account that is signed in, ask for an invitation to its address.";
    text.push(other.to_owned());
    let page = Page {
        title: TITLE,
        error: Some(&error),
        text,
        action: Some("/auth/invitation"),
        hidden: hidden(link),
        buttons: vec![Button { text: &again, decision: "switch", plain: false }],
        ..Page::default()
    };
    cx.page(StatusCode::FORBIDDEN, page)
}

/// For somebody who has an account, or who can make one only by the mail.
fn sign_in_page(cx: &Cx, link: &OpenedLink, open: &OpenInvitation, has_account: bool) -> Response {
    let mut text = offer(open);
    text.push(if has_account {
        format!("{} has an account. Sign in to join.", open.email)
    } else {
        format!(
            "If you have an account, sign in to join. To create one, open the link in the mail that was sent to {}.",
            open.email
        )
    });
    let continue_to = link.path().expose().clone();
    let page = Page {
        title: TITLE,
        text,
        action: Some("/auth/login"),
        by_get: true,
        hidden: vec![("continue", continue_to), ("login_hint", open.email.clone())],
        buttons: vec![Button { text: "Sign in", decision: "", plain: false }],
        ..Page::default()
    };
    cx.page(StatusCode::OK, page)
}

fn sign_up_page(cx: &Cx, link: &OpenedLink, open: &OpenInvitation, error: Option<&str>) -> Response {
    let page = Page {
        title: TITLE,
        error,
        text: offer(open),
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

/// What was joined, and what to do next.
fn joined_page(cx: &Cx, invitation: &OpenInvitation, browser: &Browser) -> Response {
    let server = &cx.issuer.0.config.public_url;
    let mut joined = Section::new("");
    joined.facts = vec![("Organization", format!("{} ({})", invitation.org_name, invitation.role.name()))];
    match &invitation.project {
        Some(InvitedProject { name: Some(name), role }) => {
            joined.facts.push(("Project", format!("{name} ({})", role.name())));
        }
        Some(InvitedProject { name: None, .. }) => joined.text.push(
            "The project that the invitation was for has been deleted. Ask an administrator of the organization \
             for another one."
                .to_owned(),
        ),
        // Others see the projects of the organization by their role.
        None if invitation.role == MemberRole::Member => joined.text.push(
            "Projects are where machines run. Ask an owner or administrator of the organization to add you to one."
                .to_owned(),
        ),
        None => {}
    }
    let mut next = Section::new("What next");
    next.commands = vec![
        ("Sign in with the command line:", format!("gpuaas auth login --server {server}")),
        ("See what you can reach:", "gpuaas auth whoami".to_owned()),
        ("See what can be launched:", "gpuaas catalog".to_owned()),
    ];
    let page = Page {
        title: "Welcome",
        notice: Some(Notice::Good(format!("You are now a member of {}.", invitation.org_name))),
        text: vec![format!("You are signed in as {}.", browser.account.email)],
        sections: vec![joined, next],
        links: vec![("/auth/login".to_owned(), "Your account")],
        ..Page::default()
    };
    cx.page(StatusCode::OK, page)
}

/// Why the invitation is worth nothing any more.
fn ended_page(cx: &Cx, link: &OpenedLink, sent: &SentInvitation, now: Standing, signed_in: bool) -> Response {
    let open = &sent.invitation;
    let error = match now {
        Standing::Accepted(_) => "The invitation was used already.",
        Standing::Declined => "The invitation was declined.",
        Standing::Revoked => "The invitation was revoked.",
        Standing::Open | Standing::Expired => "The invitation has expired.",
    };
    let from = match open.invited_by.as_str() {
        "" => "an owner or administrator of the organization",
        name => name,
    };
    let text = vec![format!("It was for {} to join {}.", open.email, open.offer())];
    let again = match now {
        Standing::Accepted(_) => {
            format!("If it was not you, tell {from}. Ask for a new invitation if you need one.")
        }
        _ => format!("Ask for a new invitation from {from}."),
    };
    let links = match now {
        Standing::Accepted(_) if !signed_in && cx.issuer.0.config.people => {
            vec![(with_continue("/auth/login", link.path().expose()), "I used it: sign in")]
        }
        _ => Vec::new(),
    };
    let text = text.into_iter().chain([again]).collect();
    let page = Page { title: "Invitation", error: Some(error), text, links, ..Page::default() };
    cx.page(StatusCode::BAD_REQUEST, page)
}

/// The page for whoever is not signed in.
async fn stranger_page(cx: &Cx, link: &OpenedLink, open: &OpenInvitation) -> Result<Response, Failure> {
    // Only whoever reads mail at the address learns whether it has an account.
    let has_account = link.secret.proves_address() && cx.issuer.has_account(&open.email).await?;
    let may_sign_up = link.secret.proves_address() || !cx.issuer.0.links.is_mailed();
    if has_account || !may_sign_up {
        return Ok(sign_in_page(cx, link, open, has_account));
    }
    Ok(sign_up_page(cx, link, open, None))
}

async fn show(cx: &Cx, link: &OpenedLink, sent: &SentInvitation) -> Result<Response, Failure> {
    let (issuer, open) = (&cx.issuer, &sent.invitation);
    let standing = sent.standing(issuer.now());
    if !issuer.0.config.people {
        return Ok(match standing {
            Standing::Open => program_page(cx, link, open),
            ended => ended_page(cx, link, sent, ended, false),
        });
    }
    let browser = cx.browser().await?;
    match (standing, &browser) {
        (Standing::Open, Some(browser)) => Ok(join_page(cx, link, open, browser, None)),
        (Standing::Open, None) => stranger_page(cx, link, open).await,
        (Standing::Accepted(by), Some(browser))
            if issuer.user_of(&browser.account, &cx.origin).await? == by =>
        {
            Ok(joined_page(cx, open, browser))
        }
        (ended, browser) => Ok(ended_page(cx, link, sent, ended, browser.is_some())),
    }
}

pub(super) async fn form(State(_): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    let Some((link, sent)) = find(&cx).await? else { return Ok(no_invitation()) };
    Ok(show(&cx, &link, &sent).await?)
}

pub(super) async fn submit(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, PageFailure> {
    if !cx.form_is_ours() {
        return Ok(cx.stale_form());
    }
    let Some((link, sent)) = find(&cx).await? else { return Ok(no_invitation()) };
    if sent.standing(issuer.now()) != Standing::Open {
        return Ok(show(&cx, &link, &sent).await?);
    }
    let open = sent.invitation;
    match (cx.form.text("decision"), cx.browser().await?) {
        ("join", Some(browser)) => match issuer.invitation_join(&link, &open, &browser, &cx.origin).await? {
            Ok(()) => Ok(redirect(link.path().expose())),
            Err(NotJoined::OtherAccount) => Ok(other_account_page(&cx, &link, &open, &browser)),
            Err(NotJoined::Refused(text)) => Ok(join_page(&cx, &link, &open, &browser, Some(text))),
        },
        ("switch", Some(browser)) => {
            issuer.sign_out(&browser, &cx.origin).await?;
            Ok(cx.redirect_with_session(link.path().expose(), None))
        }
        ("join" | "switch", None) => Ok(stranger_page(&cx, &link, &open).await?),
        (_, None) => sign_up(&issuer, &cx, link, open).await,
        (_, Some(browser)) => Ok(join_page(&cx, &link, &open, &browser, None)),
    }
}

async fn sign_up(
    issuer: &Issuer,
    cx: &Cx,
    link: OpenedLink,
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
        Ok(cookie) => Ok(cx.redirect_with_session(link.path().expose(), Some(&cookie))),
        Err(text) => Ok(sign_up_page(cx, &link, &open, Some(text))),
    }
}
