//! While a release migrates the database, replicas of the release before still serve: each of their statements is
//! accepted as before, and answers what they expect.

use pg::Roles;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use super::schema_code::MOST_ARGUMENTS;
use super::{Finding, Gate};
use crate::queries::{self, ReleasedColumn, ReleasedStatement};
use crate::release::RELEASED_STATEMENTS;
use crate::schema::{self, Database};
use crate::tree::Tree;

/// Functions of which there are several of one name: one of them is for the release before.
const OVERLOADS: &str = "
    SELECT p.proname::text, p.oid::regprocedure::text, p.pronargs::integer FROM pg_proc p
    WHERE p.pronamespace = 'public'::regnamespace AND EXISTS (SELECT FROM pg_proc o WHERE o.proname = p.proname
        AND o.pronamespace = p.pronamespace AND o.oid <> p.oid) ORDER BY 1, 2";

pub struct ReleasedStatements;

impl Gate for ReleasedStatements {
    fn name(&self) -> &'static str {
        "released-statements"
    }

    fn holds(&self) -> &'static str {
        "the migrated database takes every statement of the last release, and keeps only the functions that these call"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let text =
            if tree.exists(RELEASED_STATEMENTS) { tree.read(RELEASED_STATEMENTS)? } else { String::new() };
        if text.is_empty() {
            let message = "there are no statements of a release. When a release is made, and for the first time \
                           now, run: cargo xtask release-contract";
            return Ok(vec![Finding::new(RELEASED_STATEMENTS, message)]);
        }
        let released = statements(&text)?;
        let present = statements(&queries::released(tree)?)?;
        schema::with_migrated(tree, async |database| {
            let mut found = refused(database, &released).await?;
            found.extend(overloads_problems(database, &released, &present).await?);
            Ok(found)
        })
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let migration = "migrations/0001_a.sql";
        let bookkeeping = "CREATE TABLE schema_code (migration bigint, revision bigint, sha256 bytea);";
        let tables = |columns: &str| format!("{bookkeeping} CREATE TABLE a ({columns});\n");
        let long = format!("f({})", ["1"; 9].join(", "));
        let statements = format!(
            "{}\n{}\n",
            r#"{"query":"SELECT b FROM a WHERE id = $1","parameters":{"Left":["Int4"]},"columns":[{"name":"b","type":"Text","nullable":false}]}"#,
            format_args!(
                r#"{{"query":"SELECT {long} AS n","parameters":{{"Left":[]}},"columns":[{{"name":"n","type":"Int4","nullable":null}}]}}"#
            ),
        );
        let function = |arguments: usize, body: &str| {
            let arguments = vec!["integer"; arguments].join(", ");
            format!(
                "CREATE OR REPLACE FUNCTION f({arguments}) RETURNS integer LANGUAGE sql AS $$ {body} $$;\n"
            )
        };
        let both = format!("{}{}", function(1, "SELECT $1"), function(9, "SELECT f($1)"));
        let file = "migrations/functions/a/f.sql";
        let describe = serde_json::json!({ "columns": [], "parameters": { "Left": [] }, "nullable": [] });
        let present = serde_json::json!({ "query": "SELECT f(1) AS n", "describe": describe });
        let good = FixtureTree::new(&[
            (migration, &tables("id int NOT NULL, b text NOT NULL, c text")),
            (file, &both),
            (RELEASED_STATEMENTS, &statements),
            (".sqlx/query-1.json", &present.to_string()),
        ]);
        super::tests::Examples::good(good)
            .bad("nothing released", "no statements of a release", |tree| tree.without(RELEASED_STATEMENTS))
            .bad("empty", "no statements of a release", |tree| tree.with(RELEASED_STATEMENTS, ""))
            .bad("column gone", "refuses a statement of the last release", |tree| {
                tree.with(migration, tables("id int NOT NULL"))
            })
            .bad("type of a column changed", "answers a statement of the last release", |tree| {
                tree.with(migration, tables("id int NOT NULL, b bigint NOT NULL"))
            })
            .bad("column may be missing now", "answers a statement of the last release", |tree| {
                tree.with(migration, tables("id int NOT NULL, b text"))
            })
            .bad("type of a parameter changed", "answers a statement of the last release", |tree| {
                tree.with(migration, tables("id bigint NOT NULL, b text NOT NULL"))
            })
            .bad("arguments of a function gone", "refuses a statement of the last release", |tree| {
                tree.with(file, function(1, "SELECT $1"))
            })
            .bad("kept too long", "no statement calls f(integer,integer", |tree| {
                tree.with(RELEASED_STATEMENTS, statements.replace(&long, "f(1)"))
            })
            .bad("called by the next release too", "call the function of its name", |tree| {
                let entry = present.to_string().replace("f(1)", &long);
                tree.with(".sqlx/query-2.json", entry)
            })
    }
}

async fn refused(database: &Database<'_>, released: &[ReleasedStatement]) -> anyhow::Result<Vec<Finding>> {
    let mut connection = database.open(Roles::Admin).await?;
    let mut found = Vec::new();
    for (index, statement) in released.iter().enumerate() {
        let message = match statement.described(&mut connection).await {
            Ok(now) if fits(statement, &now) => continue,
            Ok(now) => format!(
                "the database answers a statement of the last release differently: it was {:?} {:?}, it is {:?} {:?}: {}",
                statement.parameters, statement.columns, now.parameters, now.columns, statement.query
            ),
            Err(error) => {
                format!(
                    "the database refuses a statement of the last release: {error:#}: {}",
                    statement.query
                )
            }
        };
        found.push(Finding::at_line(RELEASED_STATEMENTS, index + 1, message));
    }
    Ok(found)
}

/// A column that was never NULL is not NULL now; everything else is equal.
fn fits(released: &ReleasedStatement, now: &ReleasedStatement) -> bool {
    let column_fits = |(was, is): (&ReleasedColumn, &ReleasedColumn)| {
        let still_there = was.nullable != Some(false) || is.nullable == Some(false);
        was.name == is.name && was.type_info == is.type_info && still_there
    };
    released.parameters == now.parameters
        && released.columns.len() == now.columns.len()
        && released.columns.iter().zip(&now.columns).all(column_fits)
}

fn statements(lines: &str) -> anyhow::Result<Vec<ReleasedStatement>> {
    Ok(lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

async fn overloads_problems(
    database: &Database<'_>,
    released: &[ReleasedStatement],
    present: &[ReleasedStatement],
) -> anyhow::Result<Vec<Finding>> {
    let mut connection = database.open(Roles::Admin).await?;
    let overloads: Vec<(String, String, i32)> = sqlx::query_as(OVERLOADS).fetch_all(&mut connection).await?;
    let mut found = Vec::new();
    for (name, signature, arguments) in overloads {
        let calls_now = is_called(&mut connection, &name, &signature, present).await?;
        let message = if calls_now && arguments > MOST_ARGUMENTS {
            format!(
                "{signature} is for the release before: call the function of its name that takes few arguments"
            )
        } else if !calls_now && !is_called(&mut connection, &name, &signature, released).await? {
            format!("no statement calls {signature}, neither now nor in the last release: delete it")
        } else {
            continue;
        };
        found.push(Finding::new(schema::FUNCTIONS, message));
    }
    Ok(found)
}

/// Whether one of the statements is refused without the function.
async fn is_called(
    connection: &mut PgConnection,
    name: &str,
    signature: &str,
    statements: &[ReleasedStatement],
) -> anyhow::Result<bool> {
    connection.execute("BEGIN").await?;
    connection.execute(AssertSqlSafe(format!("DROP FUNCTION {signature} CASCADE"))).await?;
    let mut is_called = false;
    for statement in statements.iter().filter(|statement| statement.query.contains(name)) {
        is_called = statement.described(connection).await.is_err();
        if is_called {
            break;
        }
    }
    connection.execute("ROLLBACK").await?;
    Ok(is_called)
}
