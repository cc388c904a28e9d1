//! `gpuaas audit`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
};

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use futures_util::StreamExt as _;
use kernel::audit_chain::{ExportFault, ExportVerifier};
use sdk::{Client, types};
use serde_json::json;

use super::optional;
use crate::{
    app::App,
    args::Limit,
    failure::{Exit, Failure, Result, local},
    output::{Columns, note, write_bytes},
    resolve,
    resources::names::{self, Scope},
};

#[derive(Subcommand)]
pub enum Command {
    /// List the audit trail, newest first.
    List {
        #[command(flatten)]
        trail: Trail,
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        limit: Limit,
    },
    /// Export the whole trail as NDJSON.
    Export {
        #[command(flatten)]
        trail: Trail,
        /// Output file; standard output by default.
        #[arg(short = 'f', long = "file", alias = "out", value_name = "FILE")]
        out: Option<String>,
    },
    /// Verify that no row was changed, removed or inserted.
    Verify {
        #[command(flatten)]
        trail: Trail,
        /// Verify an export offline instead; `-` for standard input.
        #[arg(long, value_name = "FILE", conflicts_with = "platform")]
        file: Option<String>,
    },
}

#[derive(ClapArgs)]
pub struct Trail {
    /// The platform's own trail (for `verify`: every trail) instead of the organization's.
    #[arg(long)]
    platform: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Outcome {
    Allowed,
    Refused,
}

#[derive(ClapArgs)]
pub struct Filter {
    /// Only actions of this user or service account.
    #[arg(long, value_name = "ID")]
    actor: Option<String>,
    /// Only this action, such as project.create.
    #[arg(long)]
    action: Option<String>,
    /// Only actions with this result.
    #[arg(long, value_enum)]
    result: Option<Outcome>,
    /// Only actions on this resource.
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    /// Only entries at or after this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only entries before this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

const COLUMNS: Columns = &[
    ("AT", "at"),
    ("ACTION", "action"),
    ("RESULT", "result"),
    ("ACTOR", "actor_id"),
    ("TARGET", "target_id"),
    ("CODE", "code"),
    ("SEQ", "seq"),
    ("ROLE", "actor_role"),
    ("REPEATS", "repeats"),
];
const VERIFIED: Columns = &[("OK", "ok"), ("CHAINS", "chains"), ("ROWS", "rows")];

pub async fn run(app: &App, command: Command) -> Result {
    match command {
        Command::Verify { file: Some(file), .. } => verify_file(app, &file),
        Command::List { trail, filter, limit } => list(app, trail, filter, &limit).await,
        Command::Export { trail, out } => {
            let client = app.client().await?;
            export(app, &client, trail, out).await
        }
        Command::Verify { trail, file: None } => verify(app, trail).await,
    }
}

async fn list(app: &App, trail: Trail, filter: Filter, limit: &Limit) -> Result {
    let client = app.client().await?;
    let since: Option<chrono::DateTime<chrono::Utc>> = optional("--since", filter.since)?;
    let until: Option<chrono::DateTime<chrono::Utc>> = optional("--until", filter.until)?;
    let (since, until) = (since.as_ref(), until.as_ref());
    let (action, actor, target) =
        (filter.action.as_deref(), filter.actor.as_deref(), filter.target.as_deref());
    let rows: Vec<types::AuditRecord> = if trail.platform {
        let org = app.given.org.as_deref();
        let result = filter.result.map(|result| match result {
            Outcome::Allowed => types::PlatformAuditListResult::Allowed,
            Outcome::Refused => types::PlatformAuditListResult::Refused,
        });
        pages!(limit.get(), |page| client.platform_audit_list(
            action,
            actor,
            page.cursor(),
            org,
            page.size(),
            result,
            since,
            target,
            until
        ))?
    } else {
        let org = resolve::org(app, &client).await?;
        let result = filter.result.map(|result| match result {
            Outcome::Allowed => types::AuditListResult::Allowed,
            Outcome::Refused => types::AuditListResult::Refused,
        });
        pages!(limit.get(), |page| client.audit_list(
            &org,
            action,
            actor,
            page.cursor(),
            page.size(),
            result,
            since,
            target,
            until
        ))?
    };
    let org = if trail.platform { None } else { resolve::org(app, &client).await.ok() };
    names::learn(app, &client, &org.as_deref().map_or(Scope::Platform, Scope::Org), &rows).await;
    app.out.list(&rows, COLUMNS)
}

/// Streamed: an export may be larger than memory.
async fn export(app: &App, client: &Client, trail: Trail, out: Option<String>) -> Result {
    let mut stream = if trail.platform {
        send!(client.platform_audit_export(app.given.org.as_deref()))
    } else {
        send!(client.audit_export(&resolve::org(app, client).await?))
    };
    let mut file = match &out {
        Some(out) => Some(fs::File::create(out).map_err(local(format!("{out} cannot be written")))?),
        None => None,
    };
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(sdk::Error::Network)?;
        match &mut file {
            Some(file) => file.write_all(&chunk).map_err(local("the export cannot be written"))?,
            None => write_bytes(&chunk)?,
        }
    }
    if let (Some(file), Some(out)) = (file, out) {
        file.sync_all().map_err(local("the export cannot be written"))?;
        note(&format!("Written to {out}."));
    }
    Ok(())
}

async fn verify(app: &App, trail: Trail) -> Result {
    let client = app.client().await?;
    let found = if trail.platform {
        send!(client.platform_audit_verify())
    } else {
        let org = resolve::org(app, &client).await?;
        send!(client.audit_verify(&org))
    };
    app.out.item(&found, VERIFIED)?;
    if found.ok {
        return Ok(());
    }
    let first = found.faults.first().and_then(|fault| {
        let fault = serde_json::to_value(fault).ok()?;
        serde_json::from_value::<kernel::audit_chain::ChainFault>(fault).ok()
    });
    let what = first.map(|fault| fault.to_string()).unwrap_or_else(|| "a chain is invalid".to_owned());
    Err(Failure::new(Exit::Server, format!("the audit trail failed verification: {what}")))
}

/// Verifies an export locally, line by line.
fn verify_file(app: &App, file: &str) -> Result {
    let unreadable = || local(format!("{file} cannot be read"));
    let reader: Box<dyn std::io::BufRead> = match file {
        "-" => Box::new(BufReader::new(std::io::stdin())),
        path => Box::new(BufReader::new(fs::File::open(path).map_err(unreadable())?)),
    };
    let mut verifier = ExportVerifier::default();
    let broken = |fault: ExportFault| {
        Failure::client(format!("the audit trail failed verification: {fault}")).suggest(
            "Compare with a new export, and verify the trail on the server with `gpuaas audit verify`.",
        )
    };
    for line in reader.split(b'\n') {
        let line = line.map_err(unreadable())?;
        verifier.line(&String::from_utf8_lossy(&line)).map_err(broken)?;
    }
    let verified = verifier.finish().map_err(broken)?;
    let shown = json!({ "ok": true, "chains": verified.chains, "rows": verified.rows });
    app.out.item(&shown, VERIFIED)
}
