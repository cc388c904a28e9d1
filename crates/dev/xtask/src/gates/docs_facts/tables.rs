//! Tables of the database and who writes them: the tables of "Who writes what" against the schema and the SQL of
//! sources and functions.

use std::collections::{BTreeMap, BTreeSet};

use super::{ARCHITECTURE, markdown};
use crate::gates::Finding;
use crate::manifest;
use crate::rust_tokens::{self, Kind};
use crate::schema::{FUNCTIONS, SCHEMA_DUMP};
use crate::tree::{Tree, is_test_path};

/// Functions of no domain belong to this crate.
const PLATFORM_CRATE: &str = "pg";

/// Who is found to write a table.
#[derive(Default)]
struct Writers {
    /// Crate → one of its files.
    sources: BTreeMap<String, String>,
    /// Crate whose function it is → one of its files.
    functions: BTreeMap<String, String>,
}

/// What the document says of a table.
struct Said {
    line: usize,
    crates: BTreeSet<String>,
    /// No source may write it, only functions.
    functions_only: bool,
}

pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let tables = tables(&tree.read(SCHEMA_DUMP)?);
    let crates: BTreeSet<String> = manifest::crates(tree)?.into_iter().map(|member| member.name).collect();
    let text = tree.read(ARCHITECTURE)?;
    let mut found = Vec::new();
    let said = writers_documented(&text, &tables, &crates, &mut found);
    let also = also_written(&text);
    let writers = writers(tree, &tables)?;
    for table in &tables {
        let Some(said) = said.get(table) else {
            found.push(Finding::new(ARCHITECTURE, format!("\"Who writes what\" lacks {table}")));
            continue;
        };
        let none = Writers::default();
        let writers = writers.get(table).unwrap_or(&none);
        for (name, file) in writers.sources.iter().chain(&writers.functions) {
            let is_exception = also.contains(&(table.clone(), name.clone()));
            if !said.crates.contains(name) && !is_exception {
                found.push(Finding::new(
                    file,
                    format!("writes {table}, which {name} does not own by {ARCHITECTURE}"),
                ));
            } else if said.functions_only && !is_exception && writers.sources.get(name) == Some(file) {
                found.push(Finding::new(
                    file,
                    format!("writes {table}, which only functions write by {ARCHITECTURE}"),
                ));
            }
        }
        for name in &said.crates {
            if !writers.sources.contains_key(name) && !writers.functions.contains_key(name) {
                let message = format!("{name} does not write {table}");
                found.push(Finding::at_line(ARCHITECTURE, said.line, message));
            }
        }
    }
    for (table, name) in &also {
        let writes = writers
            .get(table)
            .is_some_and(|w| w.sources.contains_key(name) || w.functions.contains_key(name));
        if !writes {
            found
                .push(Finding::new(ARCHITECTURE, format!("{name} does not write {table} besides its owner")));
        }
    }
    Ok(found)
}

fn tables(schema: &str) -> BTreeSet<String> {
    let names = schema.lines().filter_map(|line| {
        let rest =
            line.strip_prefix("CREATE TABLE ").or_else(|| line.strip_prefix("CREATE UNLOGGED TABLE "))?;
        Some(rest.strip_prefix("public.").unwrap_or(rest).split([' ', '(']).next()?.to_owned())
    });
    names.collect()
}

/// The table of owners: each table once; `issuer_*` stands for all that begin so.
fn writers_documented(
    text: &str,
    tables: &BTreeSet<String>,
    crates: &BTreeSet<String>,
    found: &mut Vec<Finding>,
) -> BTreeMap<String, Said> {
    let mut out: BTreeMap<String, Said> = BTreeMap::new();
    for row in markdown::table_rows(text, &["table", "only writer"]) {
        let cell = row.cells.get(1).map(String::as_str).unwrap_or_default();
        let named =
            markdown::code_spans(cell).into_iter().map(|span| span.split("::").next().unwrap_or(span));
        let writers: BTreeSet<String> =
            named.filter(|name| crates.contains(*name)).map(str::to_owned).collect();
        for name in markdown::code_spans(&row.cells[0]) {
            let meant: Vec<&String> = match name.strip_suffix('*') {
                Some(prefix) => tables.iter().filter(|table| table.starts_with(prefix)).collect(),
                None => tables.get(name).into_iter().collect(),
            };
            if meant.is_empty() {
                found.push(Finding::at_line(ARCHITECTURE, row.line, format!("there is no table {name}")));
            }
            for table in meant {
                let functions_only = cell.contains("functions only");
                let entry = Said { line: row.line, crates: writers.clone(), functions_only };
                if out.insert(table.clone(), entry).is_some() {
                    found.push(Finding::at_line(ARCHITECTURE, row.line, format!("{table} has two writers")));
                }
            }
        }
    }
    out
}

/// The table of exceptions: table and crate.
fn also_written(text: &str) -> BTreeSet<(String, String)> {
    let rows = markdown::table_rows(text, &["table", "also written by"]);
    let pairs = rows.iter().flat_map(|row| {
        let writer = row.cells.get(1).map(String::as_str).unwrap_or_default();
        let writer = markdown::code_spans(writer).first().map(|name| (*name).to_owned()).unwrap_or_default();
        markdown::code_spans(&row.cells[0]).into_iter().map(move |table| (table.to_owned(), writer.clone()))
    });
    pairs.collect()
}

/// Every INSERT, UPDATE and DELETE of a table outside of tests and development tools.
fn writers(tree: &Tree, tables: &BTreeSet<String>) -> anyhow::Result<BTreeMap<String, Writers>> {
    let mut out: BTreeMap<String, Writers> = BTreeMap::new();
    for path in tree.files()? {
        let parts: Vec<&str> = path.split('/').collect();
        match parts[..] {
            ["crates", group, name, "src", ..]
                if group != "dev" && path.ends_with(".rs") && !is_test_path(path) =>
            {
                for token in rust_tokens::tokens(&tree.read(path)?)?.iter().filter(|token| !token.in_test) {
                    let Kind::Literal(text) = &token.kind else { continue };
                    for table in written(text, tables) {
                        out.entry(table).or_default().sources.insert(name.to_owned(), path.clone());
                    }
                }
            }
            [.., folder, _] if path.starts_with(FUNCTIONS) && path.ends_with(".sql") => {
                let name = if folder == "platform" { PLATFORM_CRATE } else { folder };
                let text = tree.read(path)?;
                let code: String = text
                    .lines()
                    .map(|line| line.split("--").next().unwrap_or(line))
                    .fold(String::new(), |all, line| all + line + "\n");
                for table in written(&code, tables) {
                    out.entry(table).or_default().functions.insert(name.to_owned(), path.clone());
                }
            }
            _ => {}
        }
    }
    Ok(out)
}

/// The tables that SQL writes.
fn written(sql: &str, tables: &BTreeSet<String>) -> BTreeSet<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words: Vec<&str> =
        sql.split(|c| !is_word(c)).filter(|word| !word.is_empty() && *word != "public").collect();
    let mut out = BTreeSet::new();
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| words.get(at)).copied().unwrap_or_default();
        let target = match *word {
            "INTO" if before == "INSERT" || before == "MERGE" => words.get(at + 1),
            "FROM" if before == "DELETE" => words.get(at + 1),
            // Not of `FOR UPDATE`.
            "UPDATE" if before != "FOR" && before != "KEY" => words.get(at + 1),
            _ => None,
        };
        out.extend(target.filter(|name| tables.contains(**name)).map(|name| (*name).to_owned()));
    }
    out
}
