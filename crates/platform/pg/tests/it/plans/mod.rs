//! How the database finds what statements ask for. Statements are those of the programs (the recorded queries in
//! `.sqlx`) and those in the functions of the migrated database, never copies.
//!
//! Two rules: no statement reads a whole table that grows, apart from those that are listed; and hot statements have the
//! plans that a person accepted (`UPDATE_GOLDEN=1`).

mod functions;
mod plan;
mod rows;
mod statements;

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf};

use pg::Roles;
use sqlx::{Executor as _, PgConnection};
use testkit::TestDb;

use functions::function_statements;
use statements::{Statement, recorded_statements};

const GENERIC: &str =
    "SET plan_cache_mode = force_generic_plan; SET jit = off; SET max_parallel_workers_per_gather = 0";
const PARTIAL_INDEXES: &str = "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indpred IS NOT NULL";

/// Tables that do not grow with use, and why.
const BOUNDED: [(&str, &str); 11] = [
    ("authorities", "one for each year of the installation"),
    ("bus_consumers", "one for each consumer in the programs"),
    ("health_rules", "as many as operators write"),
    ("installation", "one row"),
    ("issuer_keys", "one for each rotation"),
    ("platform_bindings", "operators"),
    ("regions", "as many as operators make"),
    ("resource_profiles", "as many as operators make"),
    ("restore_decisions", "one for each question of a restore"),
    ("sku_catalog", "products"),
    ("sku_prices", "products"),
];

/// Hot statements by what only they contain.
const HOT: [(&str, &str); 17] = [
    ("task_lease", "UNNEST($1::uuid[], $2::int4[], $3::bool[]) AS a (node_id, room, tells)"),
    ("saga_lease", "WITH due AS ( SELECT id FROM saga_runs"),
    ("outbox_lease", "WITH due AS ( SELECT position FROM outbox_events"),
    ("bus_delivery_lease", "WITH due AS ( SELECT consumer, event_id FROM bus_deliveries"),
    ("mail_lease", "WITH RECURSIVE waiting (org) AS"),
    ("webhook_lease", "WITH RECURSIVE waiting (webhook_id) AS"),
    ("balance", "AS \"disputed?\" FROM ledger_chains c"),
    ("launch_balances", "FROM (SELECT budget_blocks($1, $2, $3) AS blocked,"),
    ("balances_due", "b.burn AS \"burn!\", b.unposted AS \"unposted!\""),
    ("idempotent_answer", "SELECT status, body FROM idempotency_records WHERE principal_id = $1"),
    ("audit_page", "FROM audit_logs WHERE org_id = $1 AND seq < $2"),
    ("ledger_page", "FROM ledger_postings p WHERE org_id = $1 AND seq < $2"),
    (
        "service_account_key",
        "FROM service_account_keys k JOIN service_accounts a ON a.id = k.service_account_id WHERE k.id = $1",
    ),
    (
        "refresh_token",
        "FROM issuer_refresh_tokens r JOIN account_sessions s ON s.id = r.session_id WHERE r.token_hash = $1",
    ),
    ("sessions_page", "FROM account_sessions WHERE user_id = $1 AND id > $3"),
    ("allocations_running", "FROM allocations WHERE state = 'active' AND id > $1 ORDER BY id LIMIT $2"),
    ("session_seen", "UPDATE account_sessions SET last_seen_at = $2"),
];

/// Functions on hot paths: every statement in them.
const HOT_FUNCTIONS: [&str; 16] = [
    "audit_append",
    "budget_blocks",
    "spend_cap_left",
    "spend_cap_spending",
    "capacity_free",
    "capacity_reserve",
    "fleet_candidates",
    "fleet_nodes_best",
    "fleet_slots_reserve",
    "idempotency_claim",
    "ledger_append",
    "ledger_lock",
    "meters_accrue",
    "meters_due",
    "meters_hold",
    "saga_start",
];

fn directory(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/plans").join(name)
}

fn is_accepting() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

/// Compares with the file, or writes it.
fn accept(file: &str, actual: &str, problems: &mut Vec<String>) {
    let path = directory(file);
    if is_accepting() {
        fs::write(&path, actual).unwrap();
    }
    let accepted = fs::read_to_string(&path).unwrap_or_default();
    if accepted != actual {
        problems.push(format!("{file} is not what was accepted.\nnow:\n{actual}\naccepted:\n{accepted}"));
    }
}

/// Planners of different major versions choose and print plans differently. Full scans are found on each.
const GOLDEN_VERSION: i32 = 15;

/// A golden cannot make a full scan right.
fn full_scans(name: &str, shape: &str) -> Vec<String> {
    let is_bounded = |line: &str| BOUNDED.iter().any(|(table, _)| line.contains(&format!(" on {table}")));
    let scans = shape.lines().filter(|line| line.contains("Seq Scan") && !is_bounded(line));
    scans.map(|line| format!("{name} reads a whole table: {}", line.trim())).collect()
}

async fn plan_of(conn: &mut PgConnection, statement: &Statement) -> serde_json::Value {
    let plan = plan::explain(conn, statement).await;
    plan.unwrap_or_else(|error| panic!("{}: {error}\n{}", statement.name, statement.sql))
}

#[tokio::test]
async fn no_statement_reads_a_whole_table_that_grows() {
    let test = TestDb::create().await;
    let mut conn = test.conn(Roles::Admin).await;
    rows::months(&mut conn).await;
    conn.execute(GENERIC).await.unwrap();
    // What is still read as a whole cannot be read in another way.
    conn.execute("SET enable_seqscan = off").await.unwrap();
    let partial: Vec<String> = sqlx::query_scalar(PARTIAL_INDEXES).fetch_all(&mut conn).await.unwrap();
    let partial: BTreeSet<String> = partial.into_iter().collect();
    let mut all = recorded_statements();
    all.extend(function_statements(&mut conn).await);
    assert!(all.len() > 700, "{} statements", all.len());
    let mut found = String::new();
    for statement in &all {
        if !["SELECT", "WITH", "INSERT", "UPDATE", "DELETE"]
            .iter()
            .any(|word| statement.sql.trim_start().starts_with(word))
        {
            continue;
        }
        let plan = plan_of(&mut conn, statement).await;
        let tables = plan::whole_tables(&plan, &partial);
        for table in tables.iter().filter(|table| BOUNDED.iter().all(|(bounded, _)| bounded != table)) {
            let beginning: String = statement.name.chars().take(120).collect();
            writeln!(found, "{table}: {beginning}").unwrap();
        }
    }
    let mut problems = Vec::new();
    accept("whole_tables.txt", &found, &mut problems);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test]
async fn hot_statements_have_the_plans_that_were_accepted() {
    let test = TestDb::create().await;
    let mut conn = test.conn(Roles::Admin).await;
    let version: i32 = sqlx::query_scalar("SELECT current_setting('server_version_num')::integer / 10000")
        .fetch_one(&mut conn)
        .await
        .unwrap();
    if version != GOLDEN_VERSION {
        println!("plans of PostgreSQL {GOLDEN_VERSION} were accepted, this is {version}: not compared");
        return;
    }
    rows::months(&mut conn).await;
    rows::fill(&mut conn).await;
    conn.execute(GENERIC).await.unwrap();
    let (recorded, in_functions) = (recorded_statements(), function_statements(&mut conn).await);
    let mut problems = Vec::new();
    for (name, fragment) in HOT {
        let matching: Vec<&Statement> =
            recorded.iter().filter(|statement| statement.name.contains(fragment)).collect();
        assert_eq!(matching.len(), 1, "statements with {fragment}");
        let shape = plan::shape(&plan_of(&mut conn, matching[0]).await);
        problems.extend(full_scans(name, &shape));
        accept(&format!("golden/{name}.txt"), &shape, &mut problems);
    }
    for name in HOT_FUNCTIONS {
        let mut shapes = String::new();
        for statement in
            in_functions.iter().filter(|statement| statement.name.split(' ').next() == Some(name))
        {
            let shape = plan::shape(&plan_of(&mut conn, statement).await);
            problems.extend(full_scans(name, &shape));
            write!(shapes, "-- {}\n{shape}\n", statements::one_line(&statement.sql)).unwrap();
        }
        assert!(!shapes.is_empty(), "{name} has no statement");
        accept(&format!("golden/{name}.txt"), &shapes, &mut problems);
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
