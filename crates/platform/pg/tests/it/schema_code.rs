//! Functions of the database follow the files, and never go back to older ones.

use std::time::Duration;

use pg::{CodeFile, Roles, SCHEMA_CODE, SchemaCode, SchemaCodeError, schema_code_apply};
use sqlx::{Executor as _, postgres::PgConnection};
use testkit::TestDb;

fn highest() -> i64 {
    pg::MIGRATOR.iter().map(|migration| migration.version).max().expect("migrations")
}

fn answering(number: u32) -> String {
    format!("CREATE OR REPLACE FUNCTION answer() RETURNS integer LANGUAGE sql AS $$ SELECT {number} $$;")
}

/// So many revisions after this program's, with these files beside its own.
async fn apply(
    owner: &mut PgConnection,
    later: i64,
    files: &[(&'static str, String)],
) -> Result<bool, SchemaCodeError> {
    let more = files.iter().map(|(path, sql)| (*path, sql.as_str()));
    let files: Vec<CodeFile<'_>> = SCHEMA_CODE.files.iter().copied().chain(more).collect();
    let code = SchemaCode { revision: SCHEMA_CODE.revision + later, files: &files };
    schema_code_apply(owner, highest(), code).await
}

async fn answer(owner: &mut PgConnection) -> i32 {
    sqlx::query_scalar("SELECT answer()").fetch_one(owner).await.expect("answer")
}

#[tokio::test]
async fn functions_are_applied_by_a_higher_revision_or_migration_and_never_by_a_lower_one() {
    let test = TestDb::create().await;
    let mut owner = test.conn(Roles::Owner).await;
    let done = schema_code_apply(&mut owner, highest(), SCHEMA_CODE).await.unwrap();
    assert!(!done, "the template has them");
    let (one, two) = ([("test/answer.sql", answering(1))], [("test/answer.sql", answering(2))]);
    assert!(apply(&mut owner, 1, &one).await.unwrap());
    assert!(!apply(&mut owner, 1, &one).await.unwrap());
    assert!(apply(&mut owner, 2, &two).await.unwrap());
    assert_eq!(answer(&mut owner).await, 2);
    assert!(!apply(&mut owner, 1, &one).await.unwrap(), "a replica of the last release restarts");
    assert_eq!(answer(&mut owner).await, 2);
    assert!(
        apply(&mut owner, 3, &one).await.unwrap(),
        "a change that was taken back is a revision of its own"
    );
    assert_eq!(answer(&mut owner).await, 1);
    // What a migration dropped is there again, although its file is the same.
    owner.execute("DROP FUNCTION answer()").await.unwrap();
    let files: Vec<CodeFile<'_>> =
        SCHEMA_CODE.files.iter().copied().chain([("test/answer.sql", one[0].1.as_str())]).collect();
    let code = SchemaCode { revision: SCHEMA_CODE.revision + 3, files: &files };
    assert!(schema_code_apply(&mut owner, highest() + 1, code).await.unwrap());
    assert_eq!(answer(&mut owner).await, 1);
}

#[tokio::test]
async fn other_functions_under_the_same_revision_are_refused() {
    let test = TestDb::create().await;
    let mut owner = test.conn(Roles::Owner).await;
    let refused = apply(&mut owner, 0, &[("test/answer.sql", answering(1))]).await;
    assert!(matches!(refused, Err(SchemaCodeError::SameRevision { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_file_that_fails_is_named_and_leaves_everything_as_it_was() {
    let test = TestDb::create().await;
    let mut owner = test.conn(Roles::Owner).await;
    apply(&mut owner, 1, &[("test/answer.sql", answering(1))]).await.unwrap();
    let broken = [("test/answer.sql", answering(2)), ("test/broken.sql", "CREATE FUNCTION".to_owned())];
    match apply(&mut owner, 2, &broken).await {
        Err(SchemaCodeError::File { path, .. }) => assert_eq!(path, "test/broken.sql"),
        other => panic!("{other:?}"),
    }
    assert_eq!(answer(&mut owner).await, 1);
    // Functions may call one another in any order, and views come after what they call.
    let view = "CREATE OR REPLACE VIEW a_view WITH (security_invoker = true) AS SELECT later() AS n;";
    let caller = "CREATE OR REPLACE FUNCTION earlier() RETURNS integer LANGUAGE sql AS $$ SELECT later() $$;";
    let called = answering(7).replace("answer()", "later()");
    let files = [
        ("test/a_view.sql", view.to_owned()),
        ("test/earlier.sql", caller.to_owned()),
        ("test/later.sql", called),
    ];
    assert!(apply(&mut owner, 2, &files).await.unwrap());
    owner.execute("SELECT n, earlier() FROM a_view").await.unwrap();
}

#[tokio::test]
async fn a_table_that_is_in_use_is_waited_for_in_short_turns() {
    let test = TestDb::create().await;
    let mut busy = test.conn(Roles::Admin).await;
    busy.execute("BEGIN; LOCK TABLE allocations IN ROW EXCLUSIVE MODE").await.unwrap();
    let mut owner = test.conn(Roles::Owner).await;
    let applying = tokio::spawn(async move { apply(&mut owner, 1, &[]).await });
    // It waits for the lock, and lets go of what it holds before it asks again.
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'allocations'::regclass";
    for expected in [1, 0] {
        testkit::eventually_within(Duration::from_secs(20), "it waits in turns", || async {
            let mut watcher = test.conn(Roles::Admin).await;
            let waiting: i64 = sqlx::query_scalar(waits).fetch_one(&mut watcher).await.unwrap();
            (waiting == expected).then_some(())
        })
        .await;
    }
    busy.execute("COMMIT").await.unwrap();
    assert!(applying.await.unwrap().unwrap());
}
