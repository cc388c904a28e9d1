//! Source files stay small. What is larger is recorded, and the record may only shrink.

use std::collections::BTreeMap;

use anyhow::Context;
use toml::Value;

use super::{Finding, Gate};
use crate::generate::SDK_SOURCE;
use crate::tree::Tree;

const RATCHET: &str = "file-size-ratchet.toml";
const LIMIT_LINES: usize = 400;
const ENDINGS: [&str; 5] = [".rs", ".ts", ".tsx", ".py", ".sql"];

pub struct FileSize;

impl Gate for FileSize {
    fn name(&self) -> &'static str {
        "file-size"
    }

    fn holds(&self) -> &'static str {
        "no source file has more than 400 lines, except as recorded in file-size-ratchet.toml"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let recorded = recorded(tree)?;
        let mut found = Vec::new();
        for path in tree.files()?.iter().filter(|path| is_counted(path)) {
            let lines = tree.read(path)?.lines().count();
            match recorded.get(path) {
                None if lines > LIMIT_LINES => {
                    let message = format!("has {lines} lines, the limit is {LIMIT_LINES}: split it");
                    found.push(Finding::new(path, message));
                }
                Some(entry) if lines > *entry => {
                    let message = format!("has grown to {lines} lines, recorded are {entry}: split it");
                    found.push(Finding::new(path, message));
                }
                Some(_) if lines <= LIMIT_LINES => {
                    found.push(Finding::new(RATCHET, format!("{path} fits the limit now: remove its entry")));
                }
                Some(entry) if lines < *entry => {
                    found.push(Finding::new(RATCHET, format!("{path}: lower it from {entry} to {lines}")));
                }
                _ => {}
            }
        }
        for path in recorded.keys().filter(|path| !is_counted(path) || !tree.exists(path)) {
            found
                .push(Finding::new(RATCHET, format!("{path} is not there or not counted: remove its entry")));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let lines = |count: usize| "//\n".repeat(count);
        let tree = FixtureTree::new(&[
            (RATCHET, "[files]\n\"big.rs\" = 500\n"),
            ("big.rs", &lines(500)),
            ("edge.rs", &lines(400)),
            ("notes.md", &lines(900)),
            ("migrations/schema.sql", &lines(900)),
            (SDK_SOURCE, &lines(900)),
        ]);
        super::tests::Examples::good(tree)
            .bad("new large file", "edge.rs: has 401 lines", |tree| tree.with("edge.rs", lines(401)))
            .bad("large migration", "0001.sql: has 401 lines", |tree| {
                tree.with("migrations/0001.sql", lines(401))
            })
            .bad("recorded file grew", "big.rs: has grown to 501", |tree| tree.with("big.rs", lines(501)))
            .bad("recorded file shrank", "lower it from 500 to 450", |tree| tree.with("big.rs", lines(450)))
            .bad("recorded file fits now", "remove its entry", |tree| tree.with("big.rs", lines(400)))
            .bad("recorded file is gone", "big.rs is not there", |tree| tree.without("big.rs"))
            .bad("record missing", "read file-size-ratchet.toml", |tree| tree.without(RATCHET))
    }
}

fn is_counted(path: &str) -> bool {
    let generated = path == SDK_SOURCE || path.starts_with("openapi/") || path.starts_with(".sqlx/");
    let schema_dump = path.rsplit('/').next() == Some("schema.sql");
    ENDINGS.iter().any(|ending| path.ends_with(ending)) && !generated && !schema_dump
}

fn recorded(tree: &Tree) -> anyhow::Result<BTreeMap<String, usize>> {
    let table = tree.toml(RATCHET)?;
    let files =
        table.get("files").and_then(Value::as_table).with_context(|| format!("{RATCHET} has no [files]"))?;
    let entry = |(path, count): (&String, &Value)| {
        let count = count.as_integer().and_then(|count| usize::try_from(count).ok());
        Ok((path.clone(), count.with_context(|| format!("{RATCHET}: {path} is not a number of lines"))?))
    };
    files.iter().map(entry).collect()
}
