//! `gpuaas nodes`.

mod list;
mod log_follow;
mod log_stream;
mod logs;
mod occupants;
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

#[derive(Subcommand)]
pub enum Command {
    /// List nodes with their state and free slots.
    List(list::List),
    /// Create a node and print the bootstrap token with which its machine enrols. The token is shown only once.
    Create(tokens::Create),
    /// Show a node with its state, what blocks it, and the next steps.
    #[command(alias = "get")]
    Show {
        /// Node, by host name or id.
        node: String,
    },
    /// Change a node's labels, pool, products, use or SSH address.
    Update(list::Update),
    /// Place no new allocations on a node. Running ones continue.
    Cordon(Reasoned),
    /// Allow new allocations on a node again.
    Uncordon {
        /// Node, by host name or id.
        node: String,
    },
    /// Drain a node: it accepts no new allocations, and running ones finish.
    Drain {
        #[command(flatten)]
        reasoned: Reasoned,
        #[command(flatten)]
        wait: Wait,
    },
    /// Put a draining node back into service.
    Undrain(Reasoned),
    /// Quarantine a node: it is out of service. Running allocations continue.
    Quarantine(Reasoned),
    /// Put a quarantined node back into service.
    Release(Reasoned),
    /// Retire a drained node.
    Retire(Reasoned),
    /// Delete a retired node from the fleet; its certificates and tokens are revoked immediately.
    #[command(alias = "remove")]
    Delete {
        #[command(flatten)]
        reasoned: Reasoned,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Create a new bootstrap token for a node that has not enrolled yet; earlier tokens are revoked.
    BootstrapToken(tokens::Another),
    /// Create a repair token for a node that lost its certificate.
    RepairToken(tokens::Another),
    /// List the certificates that were issued to a node.
    Certificates(Records),
    /// Revoke the certificates of a node: it cannot connect until it is repaired.
    RevokeCertificates {
        #[command(flatten)]
        reasoned: Reasoned,
        /// Only the certificate with this serial number.
        #[arg(long)]
        serial: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Discover a node's hardware again.
    Discover {
        /// Node, by host name or id.
        node: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Probe a node's health.
    Validate {
        /// Node, by host name or id.
        node: String,
        /// Extent of the probe; `light` does not affect running allocations.
        #[arg(long, default_value = "light", value_parser = ["onboarding", "between_tenants", "light"])]
        profile: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// List the results of a node's probes.
    Validations(Records),
    /// List the slots of a node.
    Slots(Records),
    /// Approve slots of a node. The node is probed; the slots can be sold once the probe has passed.
    ApproveSlots(work::Approve),
    /// Show the result of a node's last discovery.
    Topology {
        /// Node, by host name or id.
        node: String,
    },
    /// List the state changes of a node, newest first.
    History(Records),
    /// Read or follow the log of a node's agent or kernel.
    Logs(logs::Logs),
    /// Restart a node. Everything that runs on it is terminated.
    Reboot {
        #[command(flatten)]
        reasoned: Reasoned,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Update the agent of a node. An agent that does not become healthy is rolled back.
    AgentUpdate(work::AgentUpdate),
    /// Collect diagnostics of a node; the agent redacts secrets.
    Collect {
        /// Node, by host name or id.
        node: String,
        /// What to collect; everything by default. Can be repeated.
        #[arg(long = "part", value_name = "PART", value_parser = work::PARTS)]
        parts: Vec<String>,
        #[command(flatten)]
        wait: Wait,
    },
}

/// A change with a reason.
#[derive(ClapArgs)]
pub struct Reasoned {
    /// Node, by host name or id.
    node: String,
    /// Reason, recorded in the node's history and in the audit trail.
    #[arg(long)]
    reason: String,
}

/// What is recorded about a node.
#[derive(ClapArgs)]
pub struct Records {
    /// Node, by host name or id.
    node: String,
    #[command(flatten)]
    limit: Limit,
}

/// A node after a change.
const CHANGED: Columns = &[
    ("HOSTNAME", "hostname"),
    ("STATE", "state"),
    ("REASON", "state_reason"),
    ("CORDON", "cordon_reason"),
    ("ID", "id"),
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
        Command::Delete { reasoned, confirm } => service::delete(app, client, reasoned, &confirm).await,
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
