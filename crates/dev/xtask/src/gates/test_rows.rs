//! Tests start from what could have come about: rows of another crate are made by that crate's services (`testworld`,
//! `testfleet`), with its rules, events and audit rows, and not by an `INSERT` that knows its columns. Where a test is
//! about a state that services refuse to make, its file is recorded with the reason, and the record may only shrink.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use toml::Value;

use super::{Finding, Gate};
use crate::tree::{self, Tree};

const RATCHET: &str = "test-rows-ratchet.toml";
const FUNCTIONS: &str = "migrations/functions/";
const INSERT: &str = "INSERT INTO ";

pub struct TestRows;

impl Gate for TestRows {
    fn name(&self) -> &'static str {
        "test-rows"
    }

    fn holds(&self) -> &'static str {
        "tests insert no rows into tables of other crates, except as recorded in test-rows-ratchet.toml"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let (tables, owners) = (tables(tree)?, owners(tree)?);
        let mut recorded = recorded(tree)?;
        let mut found = Vec::new();
        for path in tree.files()?.iter().filter(|path| is_test(path)) {
            let own = |table: &str| owners.get(table).is_some_and(|owners| owners.contains(owner(path)));
            let text = tree.read(path)?;
            let foreign: Vec<_> =
                inserts(&text).filter(|(_, table)| tables.contains(*table) && !own(table)).collect();
            let Some(entry) = recorded.remove(path) else {
                found.extend(foreign.iter().map(|(line, table)| {
                    let message = format!("inserts into {table} of another crate: make it by a service");
                    Finding::at_line(path, *line, message)
                }));
                continue;
            };
            if foreign.len() > entry {
                let message = format!("has {} foreign INSERTs, recorded are {entry}", foreign.len());
                found.push(Finding::new(path, message));
            } else if foreign.len() < entry {
                let message = format!("{path}: lower it from {entry} to {}", foreign.len());
                found.push(Finding::new(RATCHET, message));
            }
        }
        for path in recorded.keys() {
            found.push(Finding::new(RATCHET, format!("{path} is not there or no test: remove its entry")));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let (own, other) = ("crates/domains/doors/tests/it/store.rs", "crates/domains/keys/tests/it/kit.rs");
        let insert = |table: &str| format!("fn f() {{\n    sql(\"INSERT INTO {table} VALUES (1)\");\n}}\n");
        let record = "[files.\"crates/domains/keys/tests/it/odd.rs\"]\ncount = 1\nreason = \"why\"\n";
        let odd = "crates/domains/keys/tests/it/odd.rs";
        let good = FixtureTree::new(&[
            (RATCHET, record),
            ("migrations/0001_doors.sql", "CREATE TABLE doors (id int);\nCREATE TABLE log (id int);\n"),
            ("migrations/functions/doors/door_open.sql", "INSERT INTO log (id) VALUES (1);"),
            ("crates/domains/doors/src/store.rs", &insert("doors (id)")),
            (own, &(insert("doors (id)") + &insert("log"))),
            (other, &(insert("made_by_the_test") + "// INSERT INTO doors\n")),
            (odd, &insert("doors (id)")),
        ]);
        super::tests::Examples::good(good)
            .bad("a row of another crate", "kit.rs:2: inserts into doors", |tree| {
                tree.with(other, insert("doors (id)"))
            })
            .bad("with the schema's name", "kit.rs:2: inserts into doors", |tree| {
                tree.with(other, insert("public.doors"))
            })
            .bad("a row that a function makes", "kit.rs:2: inserts into log", |tree| {
                tree.with(other, insert("log"))
            })
            .bad("in a test kit", "lib.rs:2: inserts into doors", |tree| {
                tree.with("crates/dev/testkit/src/lib.rs", insert("doors"))
            })
            .bad("a recorded file grew", "odd.rs: has 2 foreign INSERTs", |tree| {
                tree.with(odd, insert("doors") + &insert("doors"))
            })
            .bad("a recorded file shrank", "lower it from 1 to 0", |tree| tree.with(odd, "fn f() {}\n"))
            .bad("a recorded file is gone", "odd.rs is not there", |tree| tree.without(odd))
            .bad("a record without a reason", "has no reason", |tree| {
                tree.with(RATCHET, record.replace("reason = \"why\"\n", ""))
            })
    }
}

/// Tests of a crate, and the crates that exist for them.
fn is_test(path: &str) -> bool {
    path.ends_with(".rs") && (path.starts_with("crates/dev/test") || tree::is_test_path(path))
}

/// The crate that a file belongs to.
fn owner(path: &str) -> &str {
    path.split('/').nth(2).unwrap_or_default()
}

/// Each `INSERT INTO` outside comments: its line and its table.
fn inserts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines.flat_map(|(at, line)| {
        line.split(INSERT).skip(1).map(move |rest| {
            let rest = rest.strip_prefix("public.").unwrap_or(rest);
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            (at + 1, &rest[..end])
        })
    })
}

fn tables(tree: &Tree) -> anyhow::Result<BTreeSet<String>> {
    let mut tables = BTreeSet::new();
    let migrations =
        tree.files()?.iter().filter(|path| path.starts_with("migrations/") && path.ends_with(".sql"));
    for path in migrations.filter(|path| !path.starts_with(FUNCTIONS)) {
        for rest in tree.read(path)?.split("CREATE TABLE ").skip(1) {
            let rest = rest.strip_prefix("public.").unwrap_or(rest);
            let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
            // A name that is composed (`CREATE TABLE %I`) is none.
            tables.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
        }
    }
    Ok(tables)
}

/// Who inserts into a table: a crate by its own statements or by its functions.
fn owners(tree: &Tree) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in tree.files()? {
        let domain = path.strip_prefix(FUNCTIONS).and_then(|rest| rest.split('/').next());
        let owner = match domain {
            Some("platform") => "pg",
            Some(domain) => domain,
            None if path.ends_with(".rs") && path.contains("/src/") && !is_test(path) => owner(path),
            None => continue,
        };
        for (_, table) in inserts(&tree.read(path)?) {
            owners.entry(table.to_owned()).or_default().insert(owner.to_owned());
        }
    }
    Ok(owners)
}

fn recorded(tree: &Tree) -> anyhow::Result<BTreeMap<String, usize>> {
    let table = tree.toml(RATCHET)?;
    let files =
        table.get("files").and_then(Value::as_table).with_context(|| format!("{RATCHET} has no [files]"))?;
    let entry = |(path, entry): (&String, &Value)| {
        let reason = entry.get("reason").and_then(Value::as_str).filter(|reason| !reason.is_empty());
        reason.with_context(|| format!("{RATCHET}: {path} has no reason"))?;
        let count = entry.get("count").and_then(Value::as_integer).and_then(|n| usize::try_from(n).ok());
        Ok((path.clone(), count.with_context(|| format!("{RATCHET}: {path} has no count"))?))
    };
    files.iter().map(entry).collect()
}
