//! Every command of this program that a document tells somebody to type is one that it takes.

use std::{fs, path::Path};

use clap::{CommandFactory as _, error::ErrorKind};

use crate::args::Args;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

/// A command, and whether it stands alone on its line, to be typed as it is.
struct Told {
    text: String,
    whole: bool,
}

fn commands(document: &str) -> Vec<Told> {
    let mut told = Vec::new();
    let mut in_block = false;
    for line in document.replace("\\\n", " ").lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            if line.starts_with("gpuaas ") {
                told.push(Told { text: line.to_owned(), whole: true });
            }
        } else {
            let spans = line.split('`').skip(1).step_by(2).filter(|span| span.starts_with("gpuaas "));
            told.extend(spans.map(|span| Told { text: span.to_owned(), whole: false }));
        }
    }
    told
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

fn problem(told: &Told) -> Option<String> {
    let error = Args::command().try_get_matches_from(words(&told.text)).err()?;
    let named_only = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    // In a sentence a command may be named without what it needs.
    (told.whole || !named_only).then(|| format!("{}\n    {error}", told.text))
}

#[test]
fn every_command_in_a_document_parses() {
    let mut files: Vec<_> =
        fs::read_dir(Path::new(ROOT).join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.push(Path::new(ROOT).join("README.md"));
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "md")) {
        for told in commands(&fs::read_to_string(file).unwrap()) {
            seen += 1;
            wrong.extend(problem(&told).map(|why| format!("{}: {why}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "only {seen} commands were found");
}

#[test]
fn a_command_that_does_not_exist_is_noticed() {
    let told = |text: &str, whole| problem(&Told { text: text.to_owned(), whole }).is_some();
    assert!(told("gpuaas nodes paint gpu-01", false) && told("gpuaas nodes show", true));
    assert!(!told("gpuaas nodes show", false) && !told("gpuaas nodes show gpu-01   # all of it", true));
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
