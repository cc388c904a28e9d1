//! `gpuaas nodes`.

mod list;
mod logs;
mod page;
mod records;
mod service;
mod tokens;
mod work;

use clap::{Args as ClapArgs, Subcommand};

use crate::{
    app::App,
    args::{Confirm, Limit, Wait},
    failure::Result,
    output::Columns,
};

/// Nodes are named by id or host name.
#[derive(Subcommand)]
pub enum Command {
    /// List nodes.
    List(list::List),
    /// Create a node. The answer holds the token with which its machine joins; it is shown only once.
    Create(tokens::Create),
    /// Show a node: where it stands, and what to do next.
    #[command(visible_alias = "get")]
    Show { node: String },
    /// Change a node's labels, pool, products, use or address for users.
    Update(list::Update),
    /// Place no new work on a node. What runs there runs on.
    Cordon(Reasoned),
    /// Place new work on a node again.
    Uncordon { node: String },
    /// Let a node finish its work and take no more.
    Drain {
        #[command(flatten)]
        reasoned: Reasoned,
        #[command(flatten)]
        wait: Wait,
    },
    /// Put a draining node back into service.
    Undrain(Reasoned),
    /// Take a node out of service. What runs there runs on.
    Quarantine(Reasoned),
    /// Put a quarantined node back into service.
    Release(Reasoned),
    /// Retire a drained node.
    Retire(Reasoned),
    /// Remove a node from the fleet: its certificates and tokens stop counting at once.
    Remove {
        #[command(flatten)]
        reasoned: Reasoned,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Make another token for a node that has not joined yet; earlier ones stop working.
    BootstrapToken(tokens::Another),
    /// Make a token for a node that lost its certificate.
    RepairToken(tokens::Another),
    /// List the certificates that were given to a node.
    Certificates(Records),
    /// Revoke the certificates of a node: it is shut out until it is repaired.
    RevokeCertificates {
        #[command(flatten)]
        reasoned: Reasoned,
        /// Only this one.
        #[arg(long)]
        serial: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Look a node over again.
    Discover {
        node: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Have a node probed.
    Validate {
        node: String,
        /// `light` never disturbs a tenant.
        #[arg(long, default_value = "light", value_parser = ["onboarding", "between_tenants", "light"])]
        profile: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// List the evidence of a node's probes.
    Validations(Records),
    /// List the slots of a node.
    Slots(Records),
    /// Approve slots of a node; it is probed, and they can be sold when that has passed.
    ApproveSlots(work::Approve),
    /// Show what the last discovery of a node found.
    Topology { node: String },
    /// List the changes of a node's state, newest first.
    History(Records),
    /// Read or follow the log of a node's agent.
    Logs(logs::Logs),
    /// Restart a node. Ends what runs there.
    Reboot {
        #[command(flatten)]
        reasoned: Reasoned,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Update the agent of a node. One that does not come up healthy is put back.
    AgentUpdate(work::AgentUpdate),
    /// Collect diagnostics of a node, redacted there.
    Collect {
        node: String,
        /// What to collect; everything when not given.
        #[arg(long = "part", value_name = "PART", value_parser = work::PARTS)]
        parts: Vec<String>,
        #[command(flatten)]
        wait: Wait,
    },
}

/// A change that is justified.
#[derive(ClapArgs)]
pub struct Reasoned {
    node: String,
    /// Why; it stands in the node's history and in the audit trail.
    #[arg(long)]
    reason: String,
}

#[derive(ClapArgs)]
pub struct Records {
    node: String,
    #[command(flatten)]
    limit: Limit,
}

/// A node after a change.
const CHANGED: Columns = &[
    ("ID", "id"),
    ("HOSTNAME", "hostname"),
    ("STATE", "state"),
    ("REASON", "state_reason"),
    ("CORDON", "cordon_reason"),
];

pub async fn run(app: &App, command: Command) -> Result {
    let client = &app.client().await?;
    match command {
        Command::List(list) => list::list(app, client, list).await,
        Command::Create(create) => tokens::create(app, client, create).await,
        Command::Show { node } => page::show(app, client, &node).await,
        Command::Update(update) => list::update(app, client, update).await,
        Command::Cordon(reasoned) => service::cordon(app, client, reasoned).await,
        Command::Uncordon { node } => service::uncordon(app, client, &node).await,
        Command::Drain { reasoned, wait } => service::drain(app, client, reasoned, &wait).await,
        Command::Undrain(reasoned) => service::undrain(app, client, reasoned).await,
        Command::Quarantine(reasoned) => service::quarantine(app, client, reasoned).await,
        Command::Release(reasoned) => service::release(app, client, reasoned).await,
        Command::Retire(reasoned) => service::retire(app, client, reasoned).await,
        Command::Remove { reasoned, confirm } => service::remove(app, client, reasoned, &confirm).await,
        Command::BootstrapToken(another) => tokens::bootstrap(app, client, another).await,
        Command::RepairToken(another) => tokens::repair(app, client, another).await,
        Command::Certificates(records) => records::certificates(app, client, records).await,
        Command::RevokeCertificates { reasoned, serial, confirm } => {
            records::revoke(app, client, reasoned, serial, &confirm).await
        }
        Command::Discover { node, wait } => work::discover(app, client, &node, &wait).await,
        Command::Validate { node, profile, wait } => {
            work::validate(app, client, &node, &profile, &wait).await
        }
        Command::Validations(records) => records::validations(app, client, records).await,
        Command::Slots(records) => records::slots(app, client, records).await,
        Command::ApproveSlots(approve) => work::approve(app, client, approve).await,
        Command::Topology { node } => records::topology(app, client, &node).await,
        Command::History(records) => records::history(app, client, records).await,
        Command::Logs(logs) => logs::run(app, client, logs).await,
        Command::Reboot { reasoned, wait, confirm } => {
            work::reboot(app, client, reasoned, &wait, &confirm).await
        }
        Command::AgentUpdate(update) => work::agent_update(app, client, update).await,
        Command::Collect { node, parts, wait } => work::collect(app, client, &node, parts, &wait).await,
    }
}
