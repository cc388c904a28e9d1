//! `gpuaas health`.

use clap::Subcommand;
use sdk::types;

use super::field;
use crate::{
    app::App,
    args::{Confirm, Limit},
    failure::Result,
    output::{Columns, note},
};

pub const ACTIONS: [&str; 5] = ["observe", "warn", "cordon", "quarantine", "credit"];

#[derive(Subcommand)]
pub enum Command {
    /// The rules that decide the action for a finding; the longest matching pattern wins.
    #[command(subcommand)]
    Rules(RulesCommand),
}

#[derive(Subcommand)]
pub enum RulesCommand {
    /// List the rules, by pattern.
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Create or change a rule.
    Set {
        /// Code of a finding (xid.79), or a prefix with a wildcard (xid.*).
        pattern: String,
        /// What to do about such a finding.
        #[arg(long, value_parser = ACTIONS)]
        action: String,
        /// What such a finding means, for operators.
        #[arg(long)]
        meaning: String,
    },
    /// Delete a rule.
    Delete {
        /// Pattern of the rule, as it was set.
        pattern: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

const COLUMNS: Columns =
    &[("PATTERN", "pattern"), ("ACTION", "action"), ("MEANING", "meaning"), ("CHANGED", "updated_at")];

pub async fn run(app: &App, command: Command) -> Result {
    let Command::Rules(command) = command;
    let client = app.client().await?;
    match command {
        RulesCommand::List { limit } => {
            let rules: Vec<types::HealthRule> =
                pages!(limit.get(), |page| client.health_rule_list(page.cursor(), page.size()))?;
            app.out.list(&rules, COLUMNS)
        }
        RulesCommand::Set { pattern, action, meaning } => {
            let body = types::HealthRulePut { action: field("action", action)?, meaning };
            app.out.item(&send!(client.health_rule_put(&pattern, &body)), COLUMNS)
        }
        RulesCommand::Delete { pattern, confirm } => {
            app.confirm(&confirm, &format!("Delete the rule for {pattern}"))?;
            send!(client.health_rule_delete(&pattern));
            note(&format!("Deleted {pattern}."));
            Ok(())
        }
    }
}
