//! `gpuaas doctor`.

use chrono::DateTime;
use clap::Args as ClapArgs;
use sdk::RawRequest;
use serde::Serialize;

use crate::{
    app::App,
    failure::{Exit, Failure, Result},
    output::Columns,
    session::Origin,
};

/// Checks the connection to the server, the local clock, and the credentials.
#[derive(ClapArgs)]
pub struct Command {}

#[derive(Serialize)]
struct Check {
    check: &'static str,
    ok: bool,
    finding: String,
}

/// Tokens have validity times; a larger clock skew makes valid tokens be refused.
const TOLERATED_SKEW_SECONDS: i64 = 30;
const COLUMNS: Columns = &[("CHECK", "check"), ("OK", "ok"), ("FINDING", "finding")];

pub async fn run(app: &App, _: Command) -> Result {
    let mut checks = Vec::new();
    let mut exit = None;
    let mut report = |check, outcome: std::result::Result<String, Failure>| match outcome {
        Ok(finding) => checks.push(Check { check, ok: true, finding }),
        Err(failure) => {
            exit = exit.or(Some(failure.exit));
            let code = failure.code.map(|code| format!(" ({code})")).unwrap_or_default();
            checks.push(Check { check, ok: false, finding: format!("{}{code}", failure.message) });
        }
    };
    match app.anonymous().raw(RawRequest::get("/api/v1/auth/config")).await {
        Ok(response) => {
            report("server", Ok(format!("{} answers", app.server)));
            report("clock", clock(app, &response));
            report("issuer", issuer(app).await);
            report("credentials", credentials(app).await);
        }
        Err(error) => report("server", Err(error.into())),
    }
    app.out.list(&checks, COLUMNS)?;
    match exit {
        None => Ok(()),
        Some(exit) => Err(Failure::new(exit, "one or more checks failed")),
    }
}

fn clock(app: &App, response: &sdk::reqwest::Response) -> Result<String> {
    let date = response.headers().get("date").and_then(|date| date.to_str().ok());
    let Some(theirs) = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok()) else {
        return Ok("not checked: the server sent no Date header".to_owned());
    };
    let skew = (app.ambient.now() - theirs.to_utc()).num_seconds();
    if skew.abs() <= TOLERATED_SKEW_SECONDS {
        return Ok("in sync with the server".to_owned());
    }
    let direction = if skew > 0 { "ahead of" } else { "behind" };
    Err(Failure::new(Exit::Client, format!("the local clock is {} s {direction} the server", skew.abs())))
}

async fn issuer(app: &App) -> Result<String> {
    let config = crate::session::sign_in_config(&app.http, &app.server).await?;
    sdk::oidc::Issuer::discover(&app.http, &config.issuer).await?;
    Ok(format!("{} is reachable", config.issuer))
}

async fn credentials(app: &App) -> Result<String> {
    let origin = app.session()?.origin;
    let client = app.client().await?;
    // A service account is not a user, but by now its key has been exchanged for a token.
    if let Origin::ServiceAccount(_) = origin {
        return Ok(format!("{} works", origin.describe()));
    }
    let origin = origin.describe();
    let me = send!(client.me_get());
    Ok(format!("{origin} works: {}", me.name))
}
