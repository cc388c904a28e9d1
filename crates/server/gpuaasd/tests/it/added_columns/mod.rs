//! A rolling upgrade: replicas of one release serve while the migrations of the next add columns. The build under test
//! is the release before. It has prepared its statements on its pooled connections and compiled the functions of the
//! database in their sessions when a column is added to every table; then all of it is used again.

mod reads;
mod usage;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use pg::Roles;
use sqlx::{AssertSqlSafe, Executor as _};
use testkit::{ServerOptions, TestDb, World, eventually_within, invariants};

use reads::Reads;
use usage::Usage;

/// A table that is in use is tried again, as migrations are. Less than what a request waits for a lock.
const LOCK_TIMEOUT: &str = "SET lock_timeout = '300ms'";
const PATIENCE: Duration = Duration::from_secs(30);
/// Tables of the schema; a column of a partitioned table is added to its partitions with it. The one of the migrations
/// themselves belongs to sqlx.
const TABLES: &str = "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
    AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> '_sqlx_migrations' ORDER BY 1";

/// Few connections, so that each has prepared what it is asked for later.
fn few_connections() -> ServerOptions {
    let env = [("APP", "3"), ("SYSTEM", "6")]
        .map(|(role, count)| (format!("GPUAAS__DATABASE__{role}_CONNECTIONS"), count.to_owned()));
    let config = "[notify]\nprivate_webhooks = true\n".to_owned();
    ServerOptions { env: env.to_vec(), config, ..ServerOptions::default() }
}

/// What the migrations of the next release would do, in the same way: one table at a time, as the owner.
async fn add_columns(db: &TestDb) -> usize {
    let mut owner = db.conn(Roles::Owner).await;
    owner.execute(LOCK_TIMEOUT).await.unwrap();
    let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut owner).await.unwrap();
    let mut statements: Vec<String> = tables
        .iter()
        .map(|table| format!("ALTER TABLE {table} ADD COLUMN next_release integer NOT NULL DEFAULT 0"))
        .collect();
    // One whose rows are written anew, and one that has no default.
    statements.push(
        "ALTER TABLE projects ADD COLUMN next_label text GENERATED ALWAYS AS (upper(slug)) STORED".to_owned(),
    );
    statements.push("ALTER TABLE allocations ADD COLUMN next_note text".to_owned());
    for statement in statements {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while let Err(error) = owner.execute(AssertSqlSafe(statement.clone())).await {
            let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
            assert_eq!(code, "55P03", "{statement}: {error}");
            assert!(tokio::time::Instant::now() < deadline, "in use for too long: {statement}");
        }
    }
    tables.len()
}

/// What the server logged that nobody should see. What fails in the background is a warning with its error; while
/// columns are added, a statement may run into the lock of a table.
fn complaints(log: &str, added_at: usize) -> Vec<&str> {
    let (before, after) = log.split_at(added_at);
    let is_error = |line: &&str| {
        line.contains("\"level\":\"ERROR\"") || line.contains("cached plan") || line.contains("row type")
    };
    let is_failure = |line: &&str| line.contains("\"level\":\"WARN\"") && line.contains("\"error\":");
    before
        .lines()
        .filter(is_error)
        .chain(after.lines().filter(|line| is_error(line) || is_failure(line)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_release_before_serves_while_a_migration_adds_a_column_to_every_table() {
    let world = World::start_simulated_with(few_connections()).await;
    world.policy("billing.window_seconds", 10).await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    let nodes = world.simulated(&[("h200-8", 2)]).await;
    let usage = Usage::begin(&world, &nodes).await;
    usage.round(&world, "before").await;
    let reads = Reads::new(&world, &usage).await;
    // As often as there are connections, and at once: statements are prepared on each.
    let before = reads.all_at_once(6).await;
    let found = before.iter().filter(|(_, status)| **status == 200).count();
    assert!(found >= 95, "reads that found something: {found} of {before:#?}");

    let done = Arc::new(AtomicBool::new(false));
    let meanwhile = tokio::spawn({
        let (reads, done) = (reads.clone(), done.clone());
        async move {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) {
                reads.all_at_once(1).await;
                rounds += 1;
            }
            rounds
        }
    });
    let (tables, ()) = tokio::join!(add_columns(&world.db), usage.round(&world, "meanwhile"));
    done.store(true, Ordering::Relaxed);
    assert!(tables > 90, "{tables} tables");
    assert!(meanwhile.await.unwrap() > 0);
    let added_at = world.server.log().len();

    // The same connections, which know the tables as they were.
    assert_eq!(reads.all_at_once(6).await, before);
    usage.round(&world, "after").await;
    let accrued = world.count("SELECT count(*) FROM usage_records WHERE kind = 'usage'").await;
    eventually_within(PATIENCE, "use is accrued", || async {
        let now = world.count("SELECT count(*) FROM usage_records WHERE kind = 'usage'").await;
        (now > accrued).then_some(())
    })
    .await;
    usage.end().await;
    reads.verified().await;
    invariants::hold(&world.db).await;
    let log = world.server.log();
    assert_eq!(complaints(&log, added_at), Vec::<&str>::new());
}
