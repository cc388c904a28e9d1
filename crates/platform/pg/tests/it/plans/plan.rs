//! The plan of a statement, and what is wrong with it.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use super::statements::Statement;

/// Nodes that take all of their input before they answer: a limit above them bounds nothing below.
const TAKES_ALL: [&str; 7] = ["Sort", "Aggregate", "Hash", "WindowAgg", "SetOp", "Unique", "Materialize"];
const SCANS: [&str; 3] = ["Seq Scan", "Index Scan", "Index Only Scan"];

/// The plan that a pooled connection keeps: it was made without looking at values.
pub async fn explain(conn: &mut PgConnection, statement: &Statement) -> Result<Value, sqlx::Error> {
    let types = statement.types.join(", ");
    let types = if types.is_empty() { types } else { format!("({types})") };
    conn.execute("DEALLOCATE ALL; ROLLBACK; BEGIN").await?;
    for (name, value) in statement.settings.iter().filter_map(|setting| setting.split_once('=')) {
        let set = sqlx::query("SELECT set_config($1, $2, true)").bind(name).bind(value);
        set.persistent(false).execute(&mut *conn).await?;
    }
    let prepare = format!("PREPARE looked_at {types} AS {}", statement.sql);
    conn.execute(AssertSqlSafe(prepare)).await?;
    let kinds: Vec<String> = sqlx::query_scalar(
        "SELECT unnest(parameter_types)::text FROM pg_prepared_statements WHERE name = 'looked_at'",
    )
    .persistent(false)
    .fetch_all(&mut *conn)
    .await?;
    // A value decides only which months are left out before the plan runs.
    let value = |kind: &String| match kind.as_str() {
        "timestamp with time zone" => "date_trunc('month', now()) + interval '1 hour'",
        _ => "NULL",
    };
    let values = kinds.iter().map(value).collect::<Vec<_>>().join(", ");
    let values = if values.is_empty() { values } else { format!("({values})") };
    let explain = format!("EXPLAIN (COSTS OFF, FORMAT JSON) EXECUTE looked_at{values}");
    let plan: Value =
        sqlx::query_scalar(AssertSqlSafe(explain)).persistent(false).fetch_one(&mut *conn).await?;
    Ok(plan[0]["Plan"].clone())
}

fn text<'a>(node: &'a Value, field: &str) -> &'a str {
    node[field].as_str().unwrap_or_default()
}

/// Tables of which every row may be read. An index that holds only some rows is meant to be read as a whole. A limit
/// bounds what is found, and with a filter not what is read.
pub fn whole_tables(plan: &Value, partial_indexes: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    visit(plan, false, &mut |node, is_limited| {
        let has_condition = !text(node, "Index Cond").is_empty();
        let is_partial = partial_indexes.contains(text(node, "Index Name"));
        let is_bounded = is_limited && text(node, "Filter").is_empty();
        if SCANS.contains(&text(node, "Node Type")) && !has_condition && !is_partial && !is_bounded {
            found.insert(without_month(text(node, "Relation Name")));
        }
    });
    found
}

fn visit(node: &Value, is_limited: bool, see: &mut impl FnMut(&Value, bool)) {
    see(node, is_limited);
    let kind = text(node, "Node Type");
    let below = kind == "Limit" || is_limited && !TAKES_ALL.contains(&kind);
    for child in node["Plans"].as_array().unwrap_or(&Vec::new()) {
        let is_apart = matches!(text(child, "Parent Relationship"), "InitPlan" | "SubPlan");
        visit(child, below && !is_apart, see);
    }
}

/// The shape of a plan: nodes, indexes and what is looked up in them.
pub fn shape(plan: &Value) -> String {
    let mut lines = String::new();
    write_shape(plan, 0, &mut lines);
    lines
}

fn write_shape(node: &Value, depth: usize, lines: &mut String) {
    let mut line = text(node, "Node Type").to_owned();
    let fields = [
        ("Operation", " "),
        ("Strategy", " "),
        ("Join Type", " "),
        ("Index Name", " using "),
        ("Relation Name", " on "),
        ("CTE Name", " on "),
        ("Function Name", " on "),
        ("Subplan Name", " as "),
        ("Index Cond", " where "),
        ("Conflict Arbiter Indexes", " conflicts by "),
    ];
    for (field, before) in fields {
        let list =
            node[field].as_array().map(|list| list.iter().filter_map(Value::as_str).collect::<Vec<_>>());
        let value = list.map_or_else(|| text(node, field).to_owned(), |list| list.join(", "));
        if !value.is_empty() {
            write!(line, "{before}{value}").unwrap();
        }
    }
    let kinds: String = "  ".repeat(depth) + &without_month(&line);
    writeln!(lines, "{kinds}").unwrap();
    for child in node["Plans"].as_array().unwrap_or(&Vec::new()) {
        write_shape(child, depth + 1, lines);
    }
}

/// Partitions have their month in their names.
fn without_month(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some(at) = rest.find("_2") {
        let (before, month) = rest.split_at(at);
        let is_month = month.len() >= 8
            && month.is_char_boundary(8)
            && month.as_bytes()[1..8]
                .iter()
                .enumerate()
                .all(|(n, byte)| if n == 4 { *byte == b'm' } else { byte.is_ascii_digit() });
        out += before;
        out += if is_month { "_month" } else { &month[..2] };
        rest = &month[if is_month { 8 } else { 2 }..];
    }
    out + rest
}
