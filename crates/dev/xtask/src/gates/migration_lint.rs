//! Migrations are numbered without gaps, and none of them locks a table that may be large and in use.
//!
//! A migration runs while the last release serves requests. On a table that an earlier migration made it may
//! therefore not scan or rewrite rows under a lock, and may not take away what the last release reads.

use std::collections::BTreeSet;

use super::{Finding, Gate};
use crate::release::RELEASED_STATEMENTS;
use crate::schema::{FUNCTIONS, MIGRATIONS, SCHEMA_DUMP};
use crate::sql::{self, Statement};
use crate::tree::Tree;

/// The note that a removal is the last step of an expand/contract change.
const NOTE: &str = "expand/contract:";

pub struct MigrationLint;

impl Gate for MigrationLint {
    fn name(&self) -> &'static str {
        "migration-lint"
    }

    fn holds(&self) -> &'static str {
        "migrations are numbered without gaps, lock no table that is in use, and remove nothing silently"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let mut existing = BTreeSet::new();
        let mut number = 0;
        for path in tree.files()?.iter().filter(|path| path.starts_with("migrations/")) {
            if [SCHEMA_DUMP, RELEASED_STATEMENTS].contains(&path.as_str())
                || path.ends_with(".md")
                || path.starts_with(FUNCTIONS)
            {
                continue;
            }
            number += 1;
            if !is_named(path, number) {
                let message = format!("must be named {number:04}_what_it_does.sql: numbers have no gaps");
                found.push(Finding::new(path, message));
            }
            let text = tree.read(path)?;
            let statements = sql::statements(&text);
            for statement in &statements {
                for message in problems(statement, &existing) {
                    found.push(Finding::at_line(path, statement.line, message));
                }
            }
            existing.extend(statements.iter().filter_map(created_table));
        }
        if number == 0 {
            found.push(Finding::new(MIGRATIONS, "holds no migration"));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let second = "migrations/0002_more.sql";
        let tree = FixtureTree::new(&[
            (
                "migrations/0001_first.sql",
                "CREATE TABLE a (id uuid PRIMARY KEY);\nCREATE INDEX a_i ON a (id);\n",
            ),
            (
                second,
                "-- no-transaction\nCREATE INDEX CONCURRENTLY a_j ON a (id);\nCREATE TABLE b (id int);\n\
                 CREATE INDEX b_i ON b (id);\nALTER TABLE a ADD COLUMN n int NOT NULL DEFAULT 1, ADD m text;\n\
                 ALTER TABLE a ADD CONSTRAINT c CHECK (n > 0) NOT VALID;\nALTER TABLE a VALIDATE CONSTRAINT c;\n\
                 -- expand/contract: nothing reads it since the release before\nALTER TABLE a DROP COLUMN m;\n",
            ),
            ("migrations/schema.sql", "anything"),
        ]);
        super::tests::Examples::good(tree)
            .bad("a gap", "0002_what_it_does.sql", |tree| {
                tree.without(second).with("migrations/0003_more.sql", "SELECT 1;")
            })
            .bad("a name without a meaning", "0003_what_it_does.sql", |tree| {
                tree.with("migrations/0003.sql", "")
            })
            .bad("two of one number", "0003_what_it_does.sql", |tree| {
                tree.with("migrations/0002_other.sql", "")
            })
            .bad("index that locks", "0002_more.sql:1: CREATE INDEX", |tree| {
                tree.with(second, "CREATE UNIQUE INDEX IF NOT EXISTS a_j ON ONLY public.a (id);")
            })
            .bad("column that old rows cannot have", "NOT NULL without DEFAULT", |tree| {
                tree.with(second, "ALTER TABLE a ADD x int DEFAULT 1, ADD COLUMN n numeric(1, 2) NOT NULL;")
            })
            .bad("constraint that scans", "NOT VALID", |tree| {
                tree.with(second, "ALTER TABLE a ADD CONSTRAINT c FOREIGN KEY (id) REFERENCES a;")
            })
            .bad("type change", "rewrites", |tree| {
                tree.with(second, "ALTER TABLE a ALTER COLUMN id TYPE text;")
            })
            .bad("column dropped silently", "expand/contract:", |tree| {
                tree.with(second, "ALTER TABLE a\n    DROP COLUMN id;")
            })
            .bad("column renamed silently", "expand/contract:", |tree| {
                tree.with(second, "ALTER TABLE a RENAME id TO key;")
            })
            .bad("table dropped silently", "expand/contract:", |tree| {
                tree.with(second, "DROP TABLE IF EXISTS a;")
            })
            .bad("no migrations", "holds no migration", |_| FixtureTree::new(&[("README.md", "")]))
    }
}

fn is_named(path: &str, number: usize) -> bool {
    let Some(name) = path.strip_prefix("migrations/").and_then(|name| name.strip_suffix(".sql")) else {
        return false;
    };
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.split_once('_').is_some_and(|(digits, words)| {
        digits == format!("{number:04}") && !words.is_empty() && words.chars().all(fits)
    })
}

fn created_table(statement: &Statement) -> Option<String> {
    let at = ["TABLE"].iter().find_map(|word| statement.words.iter().take(4).position(|w| w == word))?;
    if !statement.starts(&["CREATE"]) {
        return None;
    }
    table_name(&statement.words[at + 1..])
}

/// The name that follows, without `IF [NOT] EXISTS`, `ONLY` and its schema.
fn table_name(words: &[String]) -> Option<String> {
    let mut words = words.iter().filter(|word| !matches!(word.as_str(), "IF" | "NOT" | "EXISTS" | "ONLY"));
    let first = words.next()?;
    match (words.next().map(String::as_str), words.next()) {
        (Some("."), Some(second)) => Some(second.clone()),
        _ => Some(first.clone()),
    }
}

fn problems(statement: &Statement, existing: &BTreeSet<String>) -> Vec<String> {
    let is_existing = |words: &[String]| {
        table_name(words).filter(|table| existing.contains(table)).map(|t| t.to_lowercase())
    };
    let noted = statement.comments.contains(NOTE);
    let mut out = Vec::new();
    if statement.starts(&["CREATE", "INDEX"]) || statement.starts(&["CREATE", "UNIQUE", "INDEX"]) {
        let on = statement.words.iter().position(|word| word == "ON");
        let table = on.and_then(|on| is_existing(&statement.words[on + 1..]));
        if let Some(table) = table.filter(|_| !statement.has(&["CONCURRENTLY"])) {
            out.push(format!(
                "CREATE INDEX stops all writes to {table}: put CREATE INDEX CONCURRENTLY into a migration of its \
                 own that begins with the line `-- no-transaction`"
            ));
        }
    }
    if statement.starts(&["DROP", "TABLE"]) && is_existing(&statement.words[2..]).is_some() && !noted {
        out.push(format!(
            "removes what the last release may read: say why that is over in a comment `-- {NOTE} …`"
        ));
    }
    if statement.starts(&["ALTER", "TABLE"])
        && let Some(table) = is_existing(&statement.words[2..])
    {
        for action in actions(&statement.words[2..]) {
            out.extend(action_problem(action, &table, noted));
        }
    }
    out
}

/// The parts between the commas that are not in parentheses.
fn actions(words: &[String]) -> Vec<&[String]> {
    let (mut out, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, word) in words.iter().enumerate() {
        match word.as_str() {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "," if depth == 0 => {
                out.push(&words[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    out.push(&words[start..]);
    out
}

fn action_problem(action: &[String], table: &str, noted: bool) -> Option<String> {
    let has = |words: &[&str]| sql::has(action, words);
    let removes = has(&["DROP", "COLUMN"]) || has(&["RENAME"]);
    if removes && !noted {
        return Some(format!(
            "removes what the last release reads from {table}: say why that is over in a comment `-- {NOTE} …`"
        ));
    }
    if has(&["TYPE"]) && has(&["ALTER"]) && !noted {
        return Some(format!(
            "rewrites {table} under a lock: add a column instead, or explain with `-- {NOTE} …`"
        ));
    }
    let constrains = has(&["ADD", "CONSTRAINT"]) || has(&["ADD", "CHECK"]) || has(&["ADD", "FOREIGN"]);
    let scans = (has(&["CHECK"]) || has(&["FOREIGN", "KEY"])) && !has(&["NOT", "VALID"]);
    if constrains && scans {
        return Some(format!("scans {table} under a lock: add the constraint NOT VALID, then VALIDATE it"));
    }
    let adds_column = has(&["ADD"]) && !constrains;
    if adds_column && has(&["NOT", "NULL"]) && !has(&["DEFAULT"]) {
        return Some(format!(
            "adds a column to {table} that is NOT NULL without DEFAULT, which old rows cannot have"
        ));
    }
    None
}
