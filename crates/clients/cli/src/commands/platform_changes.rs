//! `gpuaas platform changes`: changes that one administrator proposes and another approves.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{field, optional, platform::PlatformRole, policy::parsed};
use crate::{
    app::App,
    args::{Limit, Once},
    failure::Result,
    output::{Columns, note},
};

#[derive(Subcommand)]
pub enum Command {
    /// List the changes.
    List {
        #[arg(long, value_enum)]
        state: Option<State>,
        #[command(flatten)]
        limit: Limit,
    },
    #[command(visible_alias = "get")]
    Show { change: String },
    /// Propose a value for a policy that needs two administrators, such as the approval threshold of adjustments.
    ProposePolicy {
        key: String,
        /// The new value; without it the stored value is removed.
        value: Option<String>,
        /// For this organization (by id) instead of the platform.
        #[arg(long, value_name = "ORG_ID")]
        for_org: Option<String>,
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        once: Once,
    },
    /// Propose the complete platform roles of a user, when they include the permission to approve.
    ProposeRoles {
        user: String,
        #[arg(value_enum)]
        roles: Vec<PlatformRole>,
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        once: Once,
    },
    /// Approve and apply a change that another administrator proposed.
    Approve {
        change: String,
        #[command(flatten)]
        once: Once,
    },
    /// Reject a change that another administrator proposed.
    Reject {
        change: String,
        #[command(flatten)]
        once: Once,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum State {
    Proposed,
    Applied,
    Rejected,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Applied => "applied",
            Self::Rejected => "rejected",
        }
    }
}

const CHANGES: Columns = &[
    ("ID", "id"),
    ("KIND", "kind"),
    ("POLICY", "policy_key"),
    ("ORG", "org_id"),
    ("USER", "user_id"),
    ("VALUE", "value"),
    ("STATE", "state"),
    ("PROPOSED BY", "proposed_by"),
    ("DECIDED BY", "decided_by"),
    ("REASON", "reason"),
];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    match command {
        Command::List { state, limit } => {
            let state = optional("state", state.map(State::name))?;
            let found: Vec<types::SensitiveChange> =
                pages!(limit.get(), |page| client.sensitive_change_list(page.cursor(), page.size(), state))?;
            app.out.list(&found, CHANGES)
        }
        Command::Show { change } => app.out.item(&send!(client.sensitive_change_get(&change)), CHANGES),
        Command::ProposePolicy { key, value, for_org, reason, once } => {
            let body = types::PolicyProposal { value: value.map(parsed), org_id: for_org, reason };
            proposed(
                app,
                &send!(client.with_idempotency_key(&once.key())?.platform_policy_propose(&key, &body)),
            )
        }
        Command::ProposeRoles { user, roles, reason, once } => {
            let roles = roles.into_iter().map(|role| field("role", role.name())).collect::<Result<_>>()?;
            let body = types::PlatformRolesProposal { roles, reason };
            proposed(
                app,
                &send!(client.with_idempotency_key(&once.key())?.platform_user_roles_propose(&user, &body)),
            )
        }
        Command::Approve { change, once } => {
            let done = send!(client.with_idempotency_key(&once.key())?.sensitive_change_approve(&change));
            note(&applied(&done));
            app.out.item(&done, CHANGES)
        }
        Command::Reject { change, once } => {
            let done = send!(client.with_idempotency_key(&once.key())?.sensitive_change_reject(&change));
            note("Rejected the proposal. Nothing was changed.");
            app.out.item(&done, CHANGES)
        }
    }
}

/// The effect of the applied change.
fn applied(change: &types::SensitiveChange) -> String {
    let place = change.org_id.as_ref().map_or_else(String::new, |org| format!(" for {org}"));
    match (&change.policy_key, &change.user_id, &change.value) {
        (Some(key), _, Some(value)) => format!("{key} is {value} now{place}."),
        (Some(key), _, None) => {
            format!("Removed the stored value of {key}{place}: the value of the wider scope applies.")
        }
        (None, Some(user), Some(roles)) => {
            let names: Vec<&str> =
                roles.as_array().into_iter().flatten().filter_map(serde_json::Value::as_str).collect();
            format!("{user} is {} now.", names.join(" and "))
        }
        _ => "The change is applied.".to_owned(),
    }
}

fn proposed(app: &App, change: &types::SensitiveChange) -> Result {
    if change.state == types::SensitiveChangeState::Proposed {
        note(&format!(
            "Nothing is changed yet. Another administrator must approve it: gpuaas platform changes approve {}",
            change.id
        ));
    }
    app.out.item(change, CHANGES)
}
