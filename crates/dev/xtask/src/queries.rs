//! The SQL of the `sqlx` macros: found in the sources, described by a migrated database, kept in `.sqlx`.
//!
//! The macros read `.sqlx` when no database is at hand, which is how everyone builds. Their own way to write it
//! is a whole build with a database; here the same files come from the sources alone, so that a query whose
//! crate does not compile yet can still get its entry.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, anyhow};
use pg::Roles;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::postgres::Postgres;
use sqlx::{AssertSqlSafe, Describe, Executor as _, PgConnection, SqlSafeStr as _};

use crate::gates::Finding;
use crate::rust_tokens::{self, Kind, Token};
use crate::schema;
use crate::tree::Tree;

pub const CACHE: &str = ".sqlx";

/// One distinct query of the sources.
pub struct Query {
    pub sql: String,
    /// The first place that uses it.
    pub at: (String, usize),
}

/// A file of the cache, in the macros' own form.
#[derive(Serialize)]
struct Entry<'q> {
    db_name: &'static str,
    query: &'q str,
    describe: Describe<Postgres>,
    hash: &'q str,
}

/// The cache as it should be: path → content. What the database refuses is a finding.
pub fn cache(tree: &Tree) -> anyhow::Result<(BTreeMap<String, String>, Vec<Finding>)> {
    let (queries, mut found) = queries(tree)?;
    let files = schema::with_migrated(tree, async |database| {
        let mut connection = database.open(Roles::Admin).await?;
        let mut files = BTreeMap::new();
        for Query { sql, at } in &queries {
            let described = connection.describe(AssertSqlSafe(sql.as_str()).into_sql_str()).await;
            let describe = match described {
                Ok(describe) => describe,
                Err(error) => {
                    let message = format!("the database refuses this query: {error}");
                    found.push(Finding::at_line(&at.0, at.1, message));
                    continue;
                }
            };
            let hash = hex::encode(Sha256::digest(sql.as_bytes()));
            let entry = Entry { db_name: "PostgreSQL", query: sql, describe, hash: &hash };
            let content = format!("{}\n", serde_json::to_string_pretty(&entry)?);
            files.insert(format!("{CACHE}/query-{hash}.json"), content);
        }
        Ok(files)
    })?;
    Ok((files, found))
}

/// A statement as replicas of a release send it, and what they expect of its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReleasedStatement {
    pub query: String,
    pub parameters: Value,
    pub columns: Vec<ReleasedColumn>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReleasedColumn {
    pub name: String,
    #[serde(rename = "type")]
    pub type_info: Value,
    /// Whether it may be NULL, when the database can tell.
    pub nullable: Option<bool>,
}

impl ReleasedStatement {
    /// From the file of the cache, or what the macros would write into it.
    fn of_entry(query: &str, describe: &Value) -> anyhow::Result<ReleasedStatement> {
        let list = |name: &str| describe[name].as_array().with_context(|| format!("{query}: no {name}"));
        let (columns, nullable) = (list("columns")?, list("nullable")?);
        let columns = columns.iter().zip(nullable).map(|(column, nullable)| {
            let name = column["name"].as_str().unwrap_or_default().to_owned();
            ReleasedColumn { name, type_info: column["type_info"].clone(), nullable: nullable.as_bool() }
        });
        let parameters = describe["parameters"].clone();
        Ok(ReleasedStatement { query: query.to_owned(), parameters, columns: columns.collect() })
    }

    /// The same statement as this database describes it.
    pub async fn described(&self, connection: &mut PgConnection) -> anyhow::Result<ReleasedStatement> {
        let describe = connection.describe(AssertSqlSafe(self.query.as_str()).into_sql_str()).await?;
        ReleasedStatement::of_entry(&self.query, &serde_json::to_value(describe)?)
    }
}

/// The statements of the cache, a line each.
pub fn released(tree: &Tree) -> anyhow::Result<String> {
    let mut lines = String::new();
    for path in entries(tree)? {
        let entry = tree.json(&path)?;
        let query = entry["query"].as_str().with_context(|| format!("{path}: no query"))?;
        let statement = ReleasedStatement::of_entry(query, &entry["describe"])?;
        lines.push_str(&serde_json::to_string(&statement)?);
        lines.push('\n');
    }
    Ok(lines)
}

/// Writes the cache and removes what nothing uses; gives the paths that changed. With a query that the database
/// refuses it writes the others, removes nothing and fails.
pub fn refresh(tree: &Tree) -> anyhow::Result<Vec<String>> {
    let (files, found) = cache(tree)?;
    let mut changed = Vec::new();
    for (path, content) in &files {
        let target = tree.root().join(path);
        if fs::read_to_string(&target).is_ok_and(|committed| committed == *content) {
            continue;
        }
        fs::create_dir_all(tree.root().join(CACHE)).with_context(|| format!("create {CACHE}"))?;
        fs::write(&target, content).with_context(|| format!("write {path}"))?;
        changed.push(path.clone());
    }
    if let Some(finding) = found.first() {
        return Err(anyhow!("{finding}"));
    }
    for path in entries(tree)?.into_iter().filter(|path| !files.contains_key(path)) {
        fs::remove_file(tree.root().join(&path)).with_context(|| format!("remove {path}"))?;
        changed.push(path);
    }
    Ok(changed)
}

/// The cache files that are there now.
pub fn entries(tree: &Tree) -> anyhow::Result<Vec<String>> {
    let dir = tree.root().join(CACHE);
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("list {CACHE}"))? {
        out.push(format!("{CACHE}/{}", entry?.file_name().to_string_lossy()));
    }
    out.sort();
    Ok(out)
}

/// Every query of the sources; a macro whose SQL cannot be read is a finding.
pub fn queries(tree: &Tree) -> anyhow::Result<(Vec<Query>, Vec<Finding>)> {
    let mut known: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut found = Vec::new();
    for path in tree.files()?.iter().filter(|path| path.starts_with("crates/") && path.ends_with(".rs")) {
        let tokens = rust_tokens::tokens(&tree.read(path)?).with_context(|| path.clone())?;
        for (line, sql) in in_tokens(&tokens) {
            match sql {
                Some(sql) => drop(known.entry(sql).or_insert_with(|| (path.clone(), line))),
                None => found.push(Finding::at_line(
                    path,
                    line,
                    "the SQL of a query macro must be a string literal",
                )),
            }
        }
    }
    Ok((known.into_iter().map(|(sql, at)| Query { sql, at }).collect(), found))
}

/// The line and the SQL of each query macro.
fn in_tokens(tokens: &[Token]) -> Vec<(usize, Option<String>)> {
    let mut out = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let place = match token.ident() {
            Some("query" | "query_unchecked" | "query_scalar" | "query_scalar_unchecked") => 0,
            // The first argument is the type.
            Some("query_as" | "query_as_unchecked") => 1,
            _ => continue,
        };
        let [bang, open, rest @ ..] = &tokens[at + 1..] else { continue };
        if bang.kind == Kind::Punct('!') && matches!(open.kind, Kind::Open(_)) {
            out.push((token.line, literal(argument(rest, place))));
        }
    }
    out
}

/// The tokens of the argument at `place` of a macro whose inside begins `tokens`.
fn argument(tokens: &[Token], place: usize) -> &[Token] {
    let (mut depth, mut seen, mut start) = (0_usize, 0, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) if depth == 0 => return if seen == place { &tokens[start..at] } else { &[] },
            Kind::Close(_) => depth -= 1,
            Kind::Punct(',') if depth == 0 => {
                if seen == place {
                    return &tokens[start..at];
                }
                seen += 1;
                start = at + 1;
            }
            _ => {}
        }
    }
    &[]
}

/// One string literal, or several joined by `+`.
fn literal(tokens: &[Token]) -> Option<String> {
    let mut out = String::new();
    for (at, token) in tokens.iter().enumerate() {
        match &token.kind {
            Kind::Literal(text) if at % 2 == 0 => out += &syn::parse_str::<syn::LitStr>(text).ok()?.value(),
            Kind::Punct('+') if at % 2 == 1 => {}
            _ => return None,
        }
    }
    (!tokens.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<Option<String>> {
        in_tokens(&rust_tokens::tokens(source).unwrap()).into_iter().map(|(_, sql)| sql).collect()
    }

    #[test]
    fn the_sql_of_every_form_of_the_macros_is_read_as_the_compiler_reads_it() {
        let source = r##"fn f() {
            sqlx::query!("SELECT \
                          1", a(1, 2));
            select! { row = sqlx::query_as!(Row<'_>, r#"SELECT "2""#).fetch() => {} }
            query_scalar!("a" + "b", x);
            sqlx::query("SELECT 3");
        }"##;
        let expected = ["SELECT 1", "SELECT \"2\"", "ab"].map(|sql| Some(sql.to_owned()));
        assert_eq!(found(source), expected);
    }

    #[test]
    fn sql_that_is_not_a_literal_is_noticed() {
        assert_eq!(found("m!(sqlx::query!(SQL, 1))"), [None]);
        assert_eq!(found("sqlx::query_as!(Row)"), [None]);
    }
}
