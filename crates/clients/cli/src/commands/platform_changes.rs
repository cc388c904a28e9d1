//! `gpuaas platform changes`: changes that one administrator proposes and another approves.

use clap::{Subcommand, ValueEnum};
use sdk::{Client, types};

use super::{field, on_platform, optional, platform::PlatformRole, policy::parsed};
use crate::{
    app::App,
    args::{Limit, Once},
    failure::Result,
    output::{Columns, note},
    resolve,
    resources::{
        kinds,
        names::{Scope, learn},
    },
};

#[derive(Subcommand)]
pub enum Command {
    /// List the changes, newest first.
    List {
        /// Only changes in this state.
        #[arg(long, value_enum)]
        state: Option<State>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a change: what was proposed, by whom, and who decided.
    #[command(alias = "get")]
    Show {
        /// Change, by id.
        change: String,
    },
    /// Propose a value for a policy that needs two administrators, such as the approval threshold of adjustments.
    ProposePolicy {
        /// Key of the policy, as `gpuaas policy definitions` lists it.
        key: String,
        /// New value; without it the stored value is removed.
        value: Option<String>,
        /// For this organization, by slug or id, instead of the platform.
        #[arg(long, value_name = "ORG")]
        for_org: Option<String>,
        /// Reason, shown to whoever decides and recorded in the audit trail.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        once: Once,
    },
    /// Propose the complete platform roles of a user, when they include the permission to approve.
    ProposeRoles {
        /// User, by e-mail address or id.
        user: String,
        /// All platform roles that the user is to have.
        #[arg(value_enum)]
        roles: Vec<PlatformRole>,
        /// Reason, shown to whoever decides and recorded in the audit trail.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        once: Once,
    },
    /// Approve and apply a change that another administrator proposed.
    Approve {
        /// Change, by id.
        change: String,
        #[command(flatten)]
        once: Once,
    },
    /// Reject a change that another administrator proposed.
    Reject {
        /// Change, by id.
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
    ("KIND", "kind"),
    ("STATE", "state"),
    ("POLICY", "policy_key"),
    ("VALUE", "value"),
    ("USER", "user_id"),
    ("PROPOSED BY", "proposed_by"),
    ("REASON", "reason"),
    ("ID", "id"),
    ("ORG", "org_id"),
    ("DECIDED BY", "decided_by"),
];

pub async fn run(app: &App, client: &Client, command: Command) -> Result {
    match command {
        Command::List { state, limit } => {
            let state = optional("state", state.map(State::name))?;
            let found: Vec<types::SensitiveChange> =
                pages!(limit.get(), |page| client.sensitive_change_list(page.cursor(), page.size(), state))?;
            on_platform::list(app, client, &found, CHANGES).await
        }
        Command::Show { change } => {
            let id = resolve::on_platform(client, &kinds::SENSITIVE_CHANGE, &change).await?;
            on_platform::item(app, client, &send!(client.sensitive_change_get(&id)), CHANGES).await
        }
        Command::ProposePolicy { key, value, for_org, reason, once } => {
            let org_id = resolve::optional(client, &kinds::PLATFORM_ORG, &[], for_org.as_deref()).await?;
            let body = types::PolicyProposal { value: value.map(parsed), org_id, reason };
            let made = send!(client.with_idempotency_key(&once.key())?.platform_policy_propose(&key, &body));
            proposed(app, client, &made).await
        }
        Command::ProposeRoles { user, roles, reason, once } => {
            let roles = roles.into_iter().map(|role| field("role", role.name())).collect::<Result<_>>()?;
            let user = resolve::on_platform(client, &kinds::PLATFORM_USER, &user).await?;
            let body = types::PlatformRolesProposal { roles, reason };
            let made =
                send!(client.with_idempotency_key(&once.key())?.platform_user_roles_propose(&user, &body));
            proposed(app, client, &made).await
        }
        Command::Approve { change, once } => {
            let id = resolve::on_platform(client, &kinds::SENSITIVE_CHANGE, &change).await?;
            let done = send!(client.with_idempotency_key(&once.key())?.sensitive_change_approve(&id));
            learn(app, client, &Scope::Platform, std::slice::from_ref(&done)).await;
            note(&applied(&done, |id| app.out.name_of(id)));
            app.out.item(&done, CHANGES)
        }
        Command::Reject { change, once } => {
            let id = resolve::on_platform(client, &kinds::SENSITIVE_CHANGE, &change).await?;
            let done = send!(client.with_idempotency_key(&once.key())?.sensitive_change_reject(&id));
            note("Rejected the proposal. Nothing was changed.");
            on_platform::item(app, client, &done, CHANGES).await
        }
    }
}

/// The effect of the applied change.
fn applied(change: &types::SensitiveChange, called: impl Fn(&str) -> String) -> String {
    let place = change.org_id.as_ref().map_or_else(String::new, |org| format!(" for {}", called(org)));
    match (&change.policy_key, &change.user_id, &change.value) {
        (Some(key), _, Some(value)) => format!("{key} is {value} now{place}."),
        (Some(key), _, None) => {
            format!("Removed the stored value of {key}{place}: the value of the wider scope applies.")
        }
        (None, Some(user), Some(roles)) => {
            let names: Vec<&str> =
                roles.as_array().into_iter().flatten().filter_map(serde_json::Value::as_str).collect();
            format!("{} is {} now.", called(user), names.join(" and "))
        }
        _ => "The change is applied.".to_owned(),
    }
}

async fn proposed(app: &App, client: &Client, change: &types::SensitiveChange) -> Result {
    if change.state == types::SensitiveChangeState::Proposed {
        note(&format!(
            "Nothing is changed yet. Another administrator must approve it: gpuaas platform changes approve {}",
            change.id
        ));
    }
    on_platform::item(app, client, change, CHANGES).await
}
