//! `gpuaas trust`.

use std::num::NonZeroU32;

use clap::{Args as ClapArgs, Subcommand};
use sdk::{Client, types};
use serde_json::{Value, json};

use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::Result,
    output::Columns,
    resolve,
    resources::kinds,
};

#[derive(Subcommand)]
pub enum Command {
    /// Generations of the certificate authority.
    #[command(subcommand)]
    Authorities(AuthoritiesCommand),
    /// Keys that sign tasks for nodes.
    #[command(subcommand)]
    Signers(SignersCommand),
    /// Show the signed keyset that nodes trust, and the key that they pin.
    Keyset,
}

/// The first step of a rotation.
#[derive(ClapArgs)]
pub struct Stage {
    /// Reason, recorded in the audit trail.
    #[arg(long)]
    reason: Option<String>,
}

/// A step of a rotation.
#[derive(ClapArgs)]
pub struct Step {
    /// Proceed although some nodes do not trust the successor yet and would be locked out.
    #[arg(long, requires = "reason")]
    force: bool,
    /// Reason, recorded in the audit trail.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    confirm: Confirm,
}

#[derive(Subcommand)]
pub enum AuthoritiesCommand {
    /// List the generations, and how many nodes trust each.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Create a new generation and announce it to all nodes.
    Stage(Stage),
    /// Issue certificates from a staged generation; the old one is still trusted.
    Activate {
        /// Generation of the authority, by id.
        authority: String,
        #[command(flatten)]
        step: Step,
    },
    /// Stop trusting a generation that is in its grace period.
    Retire {
        /// Generation of the authority, by id.
        authority: String,
        #[command(flatten)]
        step: Step,
    },
    /// Revoke a generation immediately: nodes with its certificates cannot connect.
    Revoke {
        /// Generation of the authority, by id.
        authority: String,
        /// Reason, recorded in the audit trail.
        #[arg(long)]
        reason: String,
        /// Proceed although some nodes do not trust the successor yet and would be locked out.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        confirm: Confirm,
    },
}

#[derive(Subcommand)]
pub enum SignersCommand {
    /// List the signers, and how many nodes trust each.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Create a new signer and announce it to all nodes.
    Stage(Stage),
    /// Sign with a staged signer; the old one is still trusted.
    Activate {
        /// Version of the signer.
        #[arg(value_name = "VERSION")]
        signer: NonZeroU32,
        #[command(flatten)]
        step: Step,
    },
    /// Stop trusting a signer that is in its grace period.
    Retire {
        /// Version of the signer.
        #[arg(value_name = "VERSION")]
        signer: NonZeroU32,
        #[command(flatten)]
        step: Step,
    },
    /// Revoke a signer immediately: nodes refuse everything that it signed.
    Revoke {
        /// Version of the signer.
        #[arg(value_name = "VERSION")]
        signer: NonZeroU32,
        /// Reason, recorded in the audit trail.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const AUTHORITIES: Columns = &[
    ("ID", "id"),
    ("STATE", "state"),
    ("CONFIRMED", "nodes_confirmed"),
    ("NODES", "nodes_total"),
    ("GENUINE", "genuine"),
    ("ENDS", "not_after"),
    ("ROOT SHA256", "root_sha256"),
];
const SIGNERS: Columns = &[
    ("VERSION", "signer_version"),
    ("STATE", "state"),
    ("CONFIRMED", "nodes_confirmed"),
    ("NODES", "nodes_total"),
    ("GENUINE", "genuine"),
    ("LIST", "keyset_serial"),
    ("CHANGED", "updated_at"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = app.client().await?;
    match command {
        Command::Authorities(command) => authorities(app, &client, command).await,
        Command::Signers(command) => signers(app, &client, command).await,
        Command::Keyset => keyset(app, &client).await,
    }
}

/// The body of a rotation step; --force needs confirmation.
fn step(app: &App, step: Step, what: &str) -> Result<types::TrustStep> {
    if step.force {
        app.confirm(&step.confirm, &format!("{what} although some nodes may not trust the successor yet"))?;
    }
    Ok(types::TrustStep { force: step.force, reason: step.reason })
}

async fn id(client: &Client, text: &str) -> Result<String> {
    resolve::on_platform(client, &kinds::AUTHORITY, text).await
}

async fn authorities(app: &App, client: &Client, command: AuthoritiesCommand) -> Result {
    let one = match command {
        AuthoritiesCommand::List { limit } => {
            let list: Vec<types::Authority> =
                pages!(limit.get(), |page| client.authority_list(page.cursor(), page.size()))?;
            return app.out.list(&list, AUTHORITIES);
        }
        AuthoritiesCommand::Stage(stage) => {
            let body = types::TrustStage { reason: stage.reason };
            send!(client.authority_stage(&body))
        }
        AuthoritiesCommand::Activate { authority, step: given } => {
            let id = id(client, &authority).await?;
            let body = step(app, given, &format!("Activate {authority}"))?;
            send!(client.authority_activate(&id, &body))
        }
        AuthoritiesCommand::Retire { authority, step: given } => {
            let id = id(client, &authority).await?;
            let body = step(app, given, &format!("Retire {authority}"))?;
            send!(client.authority_retire(&id, &body))
        }
        AuthoritiesCommand::Revoke { authority, reason, force, confirm } => {
            let (id, body) = (id(client, &authority).await?, types::AuthorityRevoke { force, reason });
            app.confirm(&confirm, &format!("Revoke {authority} and every certificate that it issued"))?;
            send!(client.authority_revoke(&id, &body))
        }
    };
    app.out.item(&one, AUTHORITIES)
}

async fn signers(app: &App, client: &Client, command: SignersCommand) -> Result {
    let one = match command {
        SignersCommand::List { limit } => {
            let list: Vec<types::Signer> =
                pages!(limit.get(), |page| client.signer_list(page.cursor(), page.size()))?;
            return app.out.list(&list, SIGNERS);
        }
        SignersCommand::Stage(stage) => {
            let body = types::TrustStage { reason: stage.reason };
            send!(client.signer_stage(&body))
        }
        SignersCommand::Activate { signer, step: given } => {
            let body = step(app, given, &format!("Activate signer {signer}"))?;
            send!(client.signer_activate(signer, &body))
        }
        SignersCommand::Retire { signer, step: given } => {
            let body = step(app, given, &format!("Retire signer {signer}"))?;
            send!(client.signer_retire(signer, &body))
        }
        SignersCommand::Revoke { signer, reason, confirm } => {
            let body = types::SignerRevoke { reason };
            app.confirm(
                &confirm,
                &format!("Revoke signer {signer}: nodes refuse everything that it signed"),
            )?;
            send!(client.signer_revoke(signer, &body))
        }
    };
    app.out.item(&one, SIGNERS)
}

async fn keyset(app: &App, client: &Client) -> Result {
    let found = send!(client.keyset_get());
    let shown = json!(found);
    let signers: Vec<String> = shown["keyset"]["signers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|signer| {
            let text = |name: &str| signer[name].as_str().unwrap_or_default().to_owned();
            format!("{} {} {}", signer["signer_version"], text("state"), text("public_key"))
        })
        .collect();
    let lines = [
        ("key", found.keyset_key.clone()),
        ("serial", shown["keyset"]["serial"].to_string()),
        ("issued", shown["keyset"]["issued_at"].as_str().map(str::to_owned).unwrap_or_default()),
        ("signers", signers.join("\n")),
    ];
    app.out.page::<Value>(&shown, &lines, "")
}
