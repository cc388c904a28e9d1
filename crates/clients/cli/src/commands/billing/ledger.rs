//! `gpuaas ledger`, also as `gpuaas billing ledger`.

use std::{fs, io::BufRead, io::BufReader};

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use clap::{Subcommand, ValueEnum};
use kernel::ledger::{ExportFault, ExportVerifier, key_id};
use sdk::types;
use serde_json::json;

use super::save;
use crate::{
    app::App,
    args::{Format, Limit},
    commands::optional,
    failure::{Exit, Failure, Result, local},
    output::{Columns, note},
    resolve,
};

#[derive(Subcommand)]
pub enum Command {
    /// List the postings, newest first.
    List {
        /// Only postings of this kind.
        #[arg(long, value_enum)]
        kind: Option<Kind>,
        /// Only postings at or after this time (RFC 3339).
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Only postings before this time (RFC 3339).
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a posting with its lines.
    #[command(alias = "get")]
    Show {
        /// Sequence number in the chain.
        seq: std::num::NonZeroU64,
    },
    /// Export the whole chain as NDJSON for offline verification.
    Export {
        /// Output file; standard output by default.
        #[arg(short = 'f', long = "file", alias = "out", value_name = "FILE")]
        out: Option<String>,
    },
    /// Verify that no row was changed, removed, inserted or moved.
    Verify {
        /// Verify an export offline instead; `-` for standard input.
        #[arg(long, value_name = "FILE")]
        file: Option<String>,
        /// Accept checkpoints signed by these keys only: the public key in hexadecimal, or its id.
        #[arg(long, value_name = "KEY", requires = "file")]
        key: Vec<String>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Kind {
    Topup,
    Usage,
    Hold,
    HoldRelease,
    Refund,
    Credit,
    Promo,
    Correction,
}

const COLUMNS: Columns = &[
    ("SEQ", "seq"),
    ("AT", "posted_at"),
    ("AMOUNT", "amount"),
    ("DIRECTION", "direction"),
    ("DESCRIPTION", "description"),
    ("MOVED", "moved"),
    ("PREPAID", "prepaid_after"),
    ("HELD", "held_after"),
    ("PROMO", "promo_after"),
    ("KIND", "kind"),
    ("REASON", "reason"),
    ("LINES", "lines"),
];
const LINES: Columns = &[
    ("LINE", "line"),
    ("ACCOUNT", "account"),
    ("AMOUNT", "amount"),
    ("ALLOCATION", "allocation_id"),
    ("FROM", "window_start"),
    ("TO", "window_end"),
];
const VERIFIED: Columns = &[
    ("OK", "ok"),
    ("POSTINGS", "postings"),
    ("LINES", "lines"),
    ("CHECKPOINTS", "checkpoints"),
    ("KEYS", "keys"),
];

pub async fn run(app: &App, command: Command) -> Result {
    if let Command::Verify { file: Some(file), key } = &command {
        return verify_file(app, file, key);
    }
    let client = app.client().await?;
    let org = resolve::org(app, &client).await?;
    match command {
        Command::List { kind, since, until, limit } => {
            let kind = kind.and_then(|kind| kind.to_possible_value());
            let kind = optional("--kind", kind.as_ref().map(|kind| kind.get_name()))?;
            let since: Option<chrono::DateTime<chrono::Utc>> = optional("--since", since)?;
            let until: Option<chrono::DateTime<chrono::Utc>> = optional("--until", until)?;
            let project = None;
            let found: Vec<types::LedgerItem> = pages!(limit.get(), |page| client.ledger_list(
                &org,
                page.cursor(),
                since.as_ref(),
                kind,
                page.size(),
                project,
                until.as_ref()
            ))?;
            app.out.priced(&found, COLUMNS)
        }
        Command::Show { seq } => {
            let entry = send!(client.ledger_get(&org, seq));
            if matches!(app.out.format, Format::Json | Format::Yaml) {
                return app.out.item(&entry, COLUMNS);
            }
            let currency = entry.posting.currency.clone();
            app.out.priced_item(&entry.posting, COLUMNS)?;
            let lines: Vec<serde_json::Value> = entry
                .lines
                .iter()
                .map(|line| {
                    let mut row =
                        serde_json::to_value(line).map_err(local("the response cannot be printed"))?;
                    row["currency"] = currency.clone().into();
                    Ok(row)
                })
                .collect::<Result<_>>()?;
            app.out.priced(&lines, LINES)
        }
        Command::Export { out } => save(send!(client.ledger_export(&org)), out.as_deref()).await,
        Command::Verify { .. } => {
            let found = send!(client.ledger_verify(&org));
            let ok = found.ok;
            let fault =
                serde_json::to_value(&found).map_err(local("the response cannot be printed"))?["fault"]
                    .clone();
            app.out.item(&found, VERIFIED)?;
            if ok {
                return Ok(());
            }
            let fault = serde_json::from_value::<kernel::ledger::Fault>(fault);
            let what = fault.map_or_else(|_| "the chain is invalid".to_owned(), |fault| fault.to_string());
            Err(Failure::new(Exit::Server, format!("the ledger failed verification: {what}")))
        }
    }
}

/// Verifies an export locally, line by line.
fn verify_file(app: &App, file: &str, keys: &[String]) -> Result {
    let unreadable = || local(format!("{file} cannot be read"));
    let reader: Box<dyn BufRead> = match file {
        "-" => Box::new(BufReader::new(std::io::stdin())),
        path => Box::new(BufReader::new(fs::File::open(path).map_err(unreadable())?)),
    };
    let mut verifier = ExportVerifier::default();
    let broken = |fault: ExportFault| {
        Failure::client(format!("the ledger failed verification: {fault}")).suggest(
            "Compare with a new export, and verify the ledger on the server with `gpuaas ledger verify`.",
        )
    };
    let signed = |key: &[u8], message: &[u8], signature: &[u8]| {
        let known = keys.is_empty()
            || keys.iter().any(|known| *known == key_id(key) || *known == kernel::hex::encode(key));
        known && UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
    };
    for line in reader.split(b'\n') {
        let line = line.map_err(unreadable())?;
        verifier.line(&String::from_utf8_lossy(&line), &signed).map_err(broken)?;
    }
    let found = verifier.finish().map_err(broken)?;
    if keys.is_empty() && found.checkpoints > 0 {
        note("Compare the keys with the signing keys of the installation, or pin them with --key.");
    }
    let keys: Vec<String> = found.keys.into_iter().collect();
    let shown = json!({
        "ok": true, "chains": found.chains, "postings": found.postings, "lines": found.lines,
        "checkpoints": found.checkpoints, "keys": keys,
    });
    app.out.item(&shown, VERIFIED)
}
