//! Rows and statistics, so that the planner has something to choose between: thousands of rows in the tables that hot
//! statements read, nearly all of them over and done, as it is in production. Values follow from the number of the row,
//! and `ANALYZE` reads all of them, so statistics are the same each time.

use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

const ROWS: usize = 2_000;

const TABLES: [&str; 30] = [
    "account_sessions",
    "allocation_events",
    "allocations",
    "audit_chains",
    "audit_logs",
    "billing_accounts",
    "budgets",
    "budget_progress",
    "spend_caps",
    "spend_cap_progress",
    "bus_deliveries",
    "bus_messages",
    "capacity_claims",
    "capacity_holdings",
    "deliveries",
    "idempotency_records",
    "issuer_refresh_tokens",
    "ledger_chains",
    "ledger_lines",
    "ledger_postings",
    "ledger_references",
    "meters",
    "node_capacity",
    "node_resource_slots",
    "node_tasks",
    "nodes",
    "outbox_events",
    "saga_runs",
    "service_account_keys",
    "service_accounts",
];

/// Where the type of a column does not say enough: what is over, and the few that are not.
const VALUES: [(&str, &str, &str); 22] = [
    ("allocations", "state", "CASE WHEN g % 25 = 0 THEN 'active' ELSE 'released' END"),
    ("bus_deliveries", "consumer", "'consumer' || g % 20"),
    ("capacity_claims", "freed_at", "CASE WHEN g % 25 > 0 THEN now() END"),
    ("capacity_holdings", "kind", "'1_org'"),
    ("capacity_holdings", "org_id", "md5(g::text)::uuid"),
    ("deliveries", "channel", "CASE WHEN g % 2 = 0 THEN 'mail' ELSE 'webhook' END"),
    ("deliveries", "state", "CASE WHEN g % 100 = 0 THEN 'queued' ELSE 'delivered' END"),
    ("billing_accounts", "org_id", "md5(g::text)::uuid"),
    ("ledger_chains", "org_id", "md5(g::text)::uuid"),
    ("audit_chains", "org_id", "md5(g::text)::uuid"),
    ("meters", "state", "CASE WHEN g % 25 = 0 THEN 'open' ELSE 'settled' END"),
    ("node_capacity", "model", "'h200'"),
    ("node_capacity", "region", "'test'"),
    ("node_capacity", "node_id", "md5(g::text)::uuid"),
    ("node_resource_slots", "state", "CASE WHEN g % 25 = 0 THEN 'in_use' ELSE 'available' END"),
    ("node_tasks", "state", "CASE WHEN g % 100 = 0 THEN 'queued' ELSE 'succeeded' END"),
    ("outbox_events", "published_at", "CASE WHEN g % 100 > 0 THEN now() END"),
    ("saga_runs", "state", "CASE WHEN g % 100 = 0 THEN 'running' ELSE 'completed' END"),
    ("budgets", "project_id", "md5(g::text)::uuid"),
    ("budget_progress", "project_id", "md5(g::text)::uuid"),
    ("spend_caps", "service_account_id", "md5(g::text)::uuid"),
    ("spend_cap_progress", "service_account_id", "md5(g::text)::uuid"),
];

const COLUMNS: &str =
    "SELECT a.attname::text, format_type(a.atttypid, NULL), a.attnotnull AND NOT a.atthasdef
    FROM pg_attribute a WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped
        AND a.attgenerated = '' AND a.attidentity = '' ORDER BY a.attnum";
/// What is true of rows is not the point here.
const DROP_CHECKS: &str = "DO $$ DECLARE c record; BEGIN
    FOR c IN SELECT conrelid::regclass AS place, conname FROM pg_constraint WHERE contype = 'c' AND conislocal
        AND connamespace = 'public'::regnamespace LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.place, c.conname);
    END LOOP; END $$";

/// A vacuum between the rows and the plan would make other plans cheaper.
const VACUUM_OFF: &str = "DO $$ DECLARE c record; BEGIN
    FOR c IN SELECT oid::regclass AS place FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', c.place);
    END LOOP; END $$";

/// As the superuser, into a database that nobody else uses.
pub async fn fill(conn: &mut PgConnection) {
    conn.execute("SET session_replication_role = replica").await.unwrap();
    conn.execute(DROP_CHECKS).await.unwrap();
    conn.execute(VACUUM_OFF).await.unwrap();
    for table in TABLES {
        let columns: Vec<(String, String, bool)> =
            sqlx::query_as(COLUMNS).bind(table).fetch_all(&mut *conn).await.unwrap();
        let chosen: Vec<(String, String)> = columns
            .into_iter()
            .filter_map(|(column, kind, needed)| Some((value(table, &column, &kind, needed)?, column)))
            .map(|(value, column)| (column, value))
            .collect();
        let names: Vec<&str> = chosen.iter().map(|(column, _)| column.as_str()).collect();
        let values: Vec<&str> = chosen.iter().map(|(_, value)| value.as_str()).collect();
        let sql = format!(
            "INSERT INTO {table} ({}) SELECT {} FROM generate_series(1, {ROWS}) AS g ON CONFLICT DO NOTHING",
            names.join(", "),
            values.join(", ")
        );
        conn.execute(AssertSqlSafe(sql.clone())).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    conn.execute("SET session_replication_role = origin").await.unwrap();
    conn.execute("ANALYZE").await.unwrap();
}

/// Partitions for the month of the rows.
pub async fn months(conn: &mut PgConnection) {
    for table in ["ledger_postings", "ledger_lines", "usage_records"] {
        sqlx::query("SELECT month_ensure($1, now())").bind(table).execute(&mut *conn).await.unwrap();
    }
}

/// Nothing when the column may do without.
fn value(table: &str, column: &str, kind: &str, needed: bool) -> Option<String> {
    if let Some((_, _, value)) = VALUES.iter().find(|(t, c, _)| *t == table && *c == column) {
        return Some((*value).to_owned());
    }
    // Of these there are fewer than rows.
    let groups = match column {
        "org_id" => Some(50),
        "project_id" | "node_id" => Some(100),
        "user_id" | "principal_id" | "creator_id" | "actor_id" => Some(200),
        "webhook_id" => Some(20),
        _ => None,
    };
    if let Some(groups) = groups.filter(|_| kind == "uuid") {
        return Some(format!("md5((g % {groups})::text)::uuid"));
    }
    let is_key = matches!(column, "id" | "seq" | "allocation_id" | "wake_at" | "available_at");
    if !needed && !is_key {
        return None;
    }
    let value = match kind {
        "uuid" => "md5(g::text)::uuid",
        "text" => "'x' || g",
        // Within one month, whatever the day.
        "timestamp with time zone" => "date_trunc('month', now()) + g * interval '1 second'",
        "smallint" => "1",
        "integer" | "bigint" => "g",
        "jsonb" => "'{}'",
        "bytea" => "sha256(g::text::bytea)",
        "boolean" => "false",
        "date" => "current_date",
        kind if kind.ends_with("[]") => "'{}'",
        kind => panic!("a value of {kind} for {table}.{column}"),
    };
    Some(value.to_owned())
}
