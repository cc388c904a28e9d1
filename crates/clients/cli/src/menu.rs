//! The commands by task, as the first help page lists them, and what the shell completes.

use clap::{Command, CommandFactory as _};

use crate::{args::Args, examples, resources::complete};

/// Task and commands. A test fails for a command that stands in no task.
const TASKS: &[(&str, &[&str])] = &[
    ("Start here", &["auth", "status", "context", "open", "doctor"]),
    (
        "Machines",
        &[
            "catalog",
            "launch",
            "ls",
            "ssh",
            "terminal",
            "recordings",
            "ssh-config",
            "rm",
            "allocations",
            "groups",
            "ssh-keys",
        ],
    ),
    ("Money", &["billing", "ledger"]),
    (
        "Teams",
        &[
            "orgs",
            "projects",
            "members",
            "invitations",
            "service-accounts",
            "policy",
            "audit",
            "notifications",
            "webhooks",
        ],
    ),
    (
        "Fleet (operators)",
        &["nodes", "slots", "tasks", "findings", "health", "regions", "pools", "agents", "trust"],
    ),
    ("Platform (operators)", &["ops", "platform", "skus"]),
    ("Scripting", &["api", "completion", "help"]),
];

/// The command line with examples, tasks and completion.
pub fn command() -> Command {
    let command = complete::attach(examples::attach(Args::command()));
    let listed = tasks(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}Options:\n{{options}}{{after-help}}"
    ))
}

fn tasks(command: &Command) -> String {
    let about = |name: &str| {
        let found = command.get_subcommands().find(|sub| sub.get_name() == name);
        found.and_then(Command::get_about).map(ToString::to_string)
    };
    let mut text = String::new();
    for (task, names) in TASKS {
        text.push_str(&format!("{task}:\n"));
        for name in *names {
            let about = about(name).unwrap_or_else(|| "Print help of a command".to_owned());
            text.push_str(&format!("  {name:<17} {}\n", about.trim_end_matches('.')));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_stands_in_exactly_one_task() {
        let listed: Vec<&str> = TASKS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let unique: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(unique.len(), listed.len(), "a command is listed twice");
        let command = Args::command();
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(Command::get_name);
        let shown: BTreeSet<&str> = shown.chain(["help"]).collect();
        assert_eq!(unique, shown);
    }

    #[test]
    fn the_first_page_fits_eighty_columns() {
        let page = command().term_width(80).render_help().to_string();
        for line in page.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
