//! Every `gpuaas` command in the documents parses.

use std::{fs, path::Path};

use clap::{CommandFactory as _, error::ErrorKind};

use crate::args::Args;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

/// A command, and whether it is a whole line of a code block, to be typed unchanged.
struct DocumentedCommand {
    text: String,
    whole: bool,
}

fn commands(document: &str) -> Vec<DocumentedCommand> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in document.replace("\\\n", " ").lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            if line.starts_with("gpuaas ") {
                found.push(DocumentedCommand { text: line.to_owned(), whole: true });
            }
        } else {
            let spans = line.split('`').skip(1).step_by(2).filter(|span| span.starts_with("gpuaas "));
            found.extend(spans.map(|span| DocumentedCommand { text: span.to_owned(), whole: false }));
        }
    }
    found
}

/// As a shell splits it: quotes hold words together, and a comment ends the line.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for letter in text.chars() {
        match letter {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '#' if !quoted && word.is_none() => break,
            ' ' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

fn problem(command: &DocumentedCommand) -> Option<String> {
    let error = Args::command().try_get_matches_from(words(&command.text)).err()?;
    let named_only = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    // In a sentence a command may be named without what it needs.
    (command.whole || !named_only).then(|| format!("{}\n    {error}", command.text))
}

#[test]
fn every_command_in_a_document_parses() {
    let mut files: Vec<_> =
        fs::read_dir(Path::new(ROOT).join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.push(Path::new(ROOT).join("README.md"));
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "md")) {
        for command in commands(&fs::read_to_string(file).unwrap()) {
            seen += 1;
            wrong.extend(problem(&command).map(|why| format!("{}: {why}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "only {seen} commands were found");
}

#[test]
fn a_command_that_does_not_exist_is_noticed() {
    let refused = |text: &str, whole| problem(&DocumentedCommand { text: text.to_owned(), whole }).is_some();
    assert!(refused("gpuaas nodes paint gpu-01", false) && refused("gpuaas nodes show", true));
    assert!(!refused("gpuaas nodes show", false) && !refused("gpuaas nodes show gpu-01   # all of it", true));
    assert_eq!(words(r#"gpuaas a --reason "new disks" # x"#), ["gpuaas", "a", "--reason", "new disks"]);
}

/// What the table of alerts points to, and what every heading below "Runbooks" is called there.
#[test]
fn every_alert_leads_to_a_runbook() {
    let document = fs::read_to_string(Path::new(ROOT).join("docs/operations.md")).unwrap();
    let anchor = |heading: &str| {
        let plain = heading.to_lowercase().replace(' ', "-");
        plain.chars().filter(|c| c.is_alphanumeric() || *c == '-').collect::<String>()
    };
    let runbooks: Vec<String> =
        document.lines().filter_map(|line| line.strip_prefix("### ")).map(anchor).collect();
    let table = document.split("Worth an alert:").nth(1).unwrap().split("\n\n").nth(1).unwrap();
    let alerts: Vec<&str> = table.lines().skip(2).collect();
    assert!(alerts.len() > 3, "{table}");
    for alert in alerts {
        let links: Vec<&str> = alert.split("](#").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        assert!(
            !links.is_empty() && links.iter().all(|link| runbooks.iter().any(|known| known == link)),
            "{alert}"
        );
    }
}
