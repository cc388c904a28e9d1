//! Every command and argument that is shown has a true description.

use clap::{Command, CommandFactory as _};

use crate::args::Args;

/// Descriptions of structs that several commands share. clap takes them for that of a command without its own.
const SHARED: &[&str] = &[
    "How many items of a list to fetch",
    "For operations that cannot be undone",
    "For operations that complete asynchronously",
    "For operations that must not be executed twice",
    "Filters of usage",
    "The requested product and size",
];

fn walk(command: &Command, path: &str, found: &mut Vec<String>) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let wrong = |what: &str| format!("{path}: {what}");
    if about.is_empty() {
        found.push(wrong("no description"));
    }
    if SHARED.iter().any(|shared| about.starts_with(shared)) {
        found.push(wrong("the description of a struct that it flattens"));
    }
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        if argument.get_help().is_none_or(|help| help.to_string().trim().is_empty()) {
            found.push(wrong(&format!("no description of {}", argument.get_id())));
        }
    }
    let shown: Vec<&Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    for (index, sub) in shown.iter().enumerate() {
        let text = |sub: &Command| sub.get_about().map(ToString::to_string);
        if shown[..index].iter().any(|other| text(other) == text(sub)) {
            found.push(wrong(&format!("{} has the description of another command", sub.get_name())));
        }
        walk(sub, &format!("{path} {}", sub.get_name()), found);
    }
}

fn faults(command: &Command) -> Vec<String> {
    let mut found = Vec::new();
    walk(command, command.get_name(), &mut found);
    found
}

#[test]
fn every_command_and_argument_has_a_description_of_its_own() {
    let found = faults(&Args::command());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_has_none_is_found() {
    let shared = Command::new("list").about("How many items of a list to fetch");
    let bare = Command::new("show").arg(clap::Arg::new("node"));
    let twice = Command::new("other").about("How many items of a list to fetch");
    let found = faults(&Command::new("x").about("x").subcommands([shared, bare, twice]));
    assert_eq!(
        found,
        [
            "x list: the description of a struct that it flattens",
            "x show: no description",
            "x show: no description of node",
            "x: other has the description of another command",
            "x other: the description of a struct that it flattens",
        ]
    );
}

/// One verb for one meaning: old spellings are hidden aliases.
#[test]
fn verbs_are_uniform() {
    fn verbs(command: &Command, path: &str, found: &mut Vec<String>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let name = sub.get_name();
            // `policy get` prints a value; it does not show a resource. `gpuaas rm` stands beside `launch` and `ls`.
            let allowed = (path == "gpuaas policy" && name == "get") || (path == "gpuaas" && name == "rm");
            if matches!(name, "get" | "add" | "remove" | "rename" | "describe" | "new" | "rm") && !allowed {
                found.push(format!("{path} {name}"));
            }
            verbs(sub, &format!("{path} {name}"), found);
        }
    }
    let mut found = Vec::new();
    verbs(&Args::command(), "gpuaas", &mut found);
    assert!(found.is_empty(), "use list, show, create, update and delete: {found:?}");
}

/// Compares with a committed file; `UPDATE_GOLDEN=1` writes it.
#[track_caller]
fn golden(name: &str, shown: &str) {
    let path = format!("{}/tests/it/goldens/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, shown).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == shown, "{path} is not as committed; UPDATE_GOLDEN=1 writes it, read the difference");
}

#[test]
fn help_is_as_committed() {
    fn pages(command: &mut Command, path: &str, shown: &mut String) {
        let page = command.render_help().to_string();
        // The global options are the same on every page.
        let own = page.split("\nGlobal options:").next().unwrap_or(&page).trim_end();
        let examples = page.split("\nExamples:").nth(1).map(|text| format!("\n\nExamples:{text}"));
        let examples = examples.filter(|_| !own.contains("Examples:")).unwrap_or_default();
        shown.push_str(&format!("$ {path} --help\n{own}{}\n\n", examples.trim_end()));
        let names: Vec<String> = command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
            .map(|sub| sub.get_name().to_owned())
            .collect();
        for name in names {
            if let Some(sub) = command.find_subcommand_mut(&name) {
                pages(sub, &format!("{path} {name}"), shown);
            }
        }
    }
    let mut command = crate::menu::command().term_width(80);
    command.build();
    let mut shown = String::new();
    pages(&mut command, "gpuaas", &mut shown);
    golden("help.txt", &shown);
}

#[test]
fn every_list_has_a_golden_table() {
    fn lists(command: &Command, path: &str, found: &mut Vec<String>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let path = format!("{path} {}", sub.get_name());
            let repeated = sub.get_arguments().any(|argument| argument.get_id() == crate::args::REPEAT);
            if repeated || sub.get_name() == "list" {
                found.push(path.clone());
            }
            lists(sub, &path, found);
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/goldens/tables-80.txt");
    let tables = std::fs::read_to_string(path).unwrap();
    let mut found = Vec::new();
    lists(&Args::command(), "gpuaas", &mut found);
    let missing: Vec<&String> = found
        .iter()
        .filter(|path| !tables.lines().any(|line| line.starts_with(&format!("$ {path}"))))
        .collect();
    assert!(missing.is_empty(), "add these to tests/it/tables.rs: {missing:?}");
}
