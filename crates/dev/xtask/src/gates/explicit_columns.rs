//! Queries name their columns. `SELECT *`, `RETURNING *` and `INSERT` without columns mean whatever the table has: a
//! replica of the last release reads and writes other columns than it was compiled for as soon as a migration adds one.
//!
//! Functions of the database are compiled where the table is. There `*` into a variable of the type of the table is right,
//! and listing the columns would be wrong: one that is added would silently be NULL. Everywhere else functions name the
//! columns of tables, `INSERT`s do, and nothing is cast to the type of a table: `ROW(…)::doors` names all columns by their
//! places, and fails when there is one more.

use std::collections::BTreeSet;

use super::{Finding, Gate};
use crate::queries;
use crate::schema::{FUNCTIONS, MIGRATIONS};
use crate::sql;
use crate::tree::Tree;

pub struct ExplicitColumns;

impl Gate for ExplicitColumns {
    fn name(&self) -> &'static str {
        "explicit-columns"
    }

    fn holds(&self) -> &'static str {
        "queries of the programs name the columns that they read and write, and functions too, but for rows of a whole table"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let (queries, _) = queries::queries(tree)?;
        for query in queries.iter().filter(|query| !query.at.0.contains("/tests/")) {
            for statement in sql::statements(&query.sql) {
                let problems = [all_columns(&statement.words), insert_without_columns(&statement.words)];
                for message in problems.into_iter().flatten() {
                    found.push(Finding::at_line(&query.at.0, query.at.1, message));
                }
            }
        }
        let tables = tables(tree)?;
        for path in tree.files()?.iter().filter(|path| path.starts_with(FUNCTIONS)) {
            let text = tree.read(path)?;
            // The statements of the file, and those of its body.
            let body = text.split("$$").nth(1).unwrap_or_default();
            for statement in sql::statements(&text).iter().chain(&sql::statements(body)) {
                let problems = [
                    all_columns_in_function(&statement.words, &tables),
                    insert_without_columns(&statement.words),
                    cast_to_table(&statement.words, &tables),
                ];
                found.extend(problems.into_iter().flatten().map(|message| Finding::new(path, message)));
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let store = "crates/domains/doors/src/store.rs";
        let function = "migrations/functions/doors/door_open.sql";
        let query = |sql: &str| format!("fn f() {{ sqlx::query!(\"{sql}\"); }}");
        let good = "WITH o AS (UPDATE doors SET n = n * 2 RETURNING id) INSERT INTO log (id, n) \
                    SELECT o.id, count(*) FROM o GROUP BY o.id";
        let body = "CREATE OR REPLACE FUNCTION door_open() RETURNS void LANGUAGE plpgsql AS $$\nDECLARE v doors;\n\
                    BEGIN SELECT * INTO v FROM doors; INSERT INTO log AS l (id) VALUES (v.id); END $$;\n";
        let table = "CREATE TABLE IF NOT EXISTS log (id uuid);";
        let tree = FixtureTree::new(&[
            ("migrations/0001_first.sql", table),
            (store, &query(good)),
            (function, &body.replace("END", "PERFORM log_hash(ROW(v.id)::log_content, NULL::log); END")),
        ]);
        let bad = |sql: &'static str| move |tree: FixtureTree| tree.with(store, query(sql));
        super::tests::Examples::good(tree)
            .bad("select all", "names no columns", bad("SELECT * FROM doors"))
            .bad("select all of one", "names no columns", bad("SELECT 1, d.* FROM doors d"))
            .bad("all in a subquery", "names no columns", bad("SELECT id FROM (SELECT *, 1 FROM doors) d"))
            .bad("return all", "names no columns", bad("DELETE FROM doors RETURNING *"))
            .bad("insert values", "INSERT INTO DOORS", bad("INSERT INTO doors VALUES (1)"))
            .bad("insert a selection", "INSERT INTO LOG", bad("INSERT INTO public.log SELECT id FROM doors"))
            .bad("a function that inserts so", "INSERT INTO LOG", |tree| {
                tree.with(function, body.replace("AS l (id) VALUES", "AS l VALUES"))
            })
            .bad("a function that joins all columns", "outside of a row variable", |tree| {
                tree.with(function, body.replace("FROM doors", "FROM (SELECT * FROM doors) d"))
            })
            .bad("a function that joins all columns of one", "outside of a row variable", |tree| {
                tree.with(
                    function,
                    body.replace("SELECT * INTO v FROM doors", "PERFORM l.*, 1 FROM log AS l"),
                )
            })
            .bad("a function that returns all", "outside of a row variable", |tree| {
                tree.with(function, body.replace("SELECT * INTO v FROM doors", "DELETE FROM log RETURNING *"))
            })
            .bad("a function that makes a row of a table", "cast to LOG", |tree| {
                tree.with(function, body.replace("END", "PERFORM log_hash(ROW(v.id)::log); END"))
            })
    }
}

/// Their names, from the numbered migrations.
fn tables(tree: &Tree) -> anyhow::Result<BTreeSet<String>> {
    let mut tables = BTreeSet::new();
    for path in
        tree.files()?.iter().filter(|path| path.starts_with(MIGRATIONS) && !path.starts_with(FUNCTIONS))
    {
        for statement in sql::statements(&tree.read(path)?) {
            let is_name =
                |word: &&String| !["CREATE", "TABLE", "IF", "NOT", "EXISTS"].contains(&word.as_str());
            if statement.starts(&["CREATE", "TABLE"]) {
                tables.extend(statement.words.iter().find(is_name).cloned());
            }
        }
    }
    Ok(tables)
}

/// `::doors`, where doors is a table. `NULL::doors` names no column: `jsonb_populate_record` goes by names.
fn cast_to_table(words: &[String], tables: &BTreeSet<String>) -> Option<String> {
    let is_cast =
        |four: &&[String]| four[0] != "NULL" && four[1] == ":" && four[2] == ":" && tables.contains(&four[3]);
    let cast = words.windows(4).find(is_cast)?;
    Some(format!("cast to {}, the type of a table: it fails when a column is added", cast[3]))
}

/// `*` where a list of columns stands; after `(` it is `count(*)`, after anything else a product.
fn all_columns(words: &[String]) -> Option<String> {
    let before = ["SELECT", "DISTINCT", "RETURNING", ",", "."];
    let is_all = |pair: &[String]| pair[1] == "*" && before.contains(&pair[0].as_str());
    words.windows(2).any(is_all).then(|| "names no columns but `*`: list those that are needed".to_owned())
}

/// `SELECT *` or `doors.*` that is not read into a row variable. A star of a subquery has the columns that it names.
fn all_columns_in_function(words: &[String], tables: &BTreeSet<String>) -> Option<String> {
    let before = ["SELECT", "DISTINCT", "RETURNING"];
    let is_star = |(at, word): &(usize, &String)| *word == "*" && *at > 0;
    let is_all = |(at, _): (usize, &String)| {
        let is_row = words.get(at + 1).is_some_and(|word| word == "INTO");
        let of_table = words[at - 1] == "." && at > 1 && is_table(words, &words[at - 2], tables);
        !is_row && (before.contains(&words[at - 1].as_str()) || of_table)
    };
    let message = "names no columns but `*`, outside of a row variable: list those that are needed";
    words.iter().enumerate().filter(is_star).any(is_all).then(|| message.to_owned())
}

/// Whether a name is that of a table in the statement, or its other name there.
fn is_table(words: &[String], name: &String, tables: &BTreeSet<String>) -> bool {
    let named = |at: usize| {
        let next = words.get(at + 1)?;
        if next == "AS" { words.get(at + 2) } else { Some(next) }
    };
    let mut all = words.iter().enumerate().filter(|(_, word)| tables.contains(*word));
    all.any(|(at, word)| word == name || named(at) == Some(name))
}

fn insert_without_columns(words: &[String]) -> Option<String> {
    let mut rest = words;
    while let Some(at) = rest.windows(2).position(|pair| pair[0] == "INSERT" && pair[1] == "INTO") {
        rest = &rest[at + 2..];
        // The table, perhaps with its schema, perhaps with another name.
        let end = rest.iter().position(|word| word == "(" || word == "VALUES" || word == "SELECT");
        let end = end.unwrap_or(rest.len());
        if rest.get(end).is_none_or(|word| word != "(") {
            let table = rest.iter().take(end).rfind(|word| *word != "AS" && word.len() > 1);
            let named = rest.iter().take(end).position(|word| word == "AS").and_then(|at| rest.get(at - 1));
            let table = named.or(table).map_or("", String::as_str);
            return Some(format!("INSERT INTO {table} without columns: name them"));
        }
    }
    None
}
