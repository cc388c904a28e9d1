//! Functions of the database follow the files, and never go back to older ones.

// Helpers here are test code too, but the lints see only functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use pg::{CodeFile, Roles, SCHEMA_CODE, SchemaCodeError, schema_code_apply};
use sqlx::{Executor as _, postgres::PgConnection};
use testkit::TestDb;

fn answering(number: u32) -> String {
    format!("CREATE OR REPLACE FUNCTION answer() RETURNS integer LANGUAGE sql AS $$ SELECT {number} $$;")
}

async fn apply(owner: &mut PgConnection, files: &[(&'static str, String)]) -> Result<usize, SchemaCodeError> {
    let more = files.iter().map(|(path, sql)| (*path, sql.as_str()));
    let all: Vec<CodeFile<'_>> = SCHEMA_CODE.iter().copied().chain(more).collect();
    schema_code_apply(owner, &all).await
}

async fn answer(owner: &mut PgConnection) -> i32 {
    sqlx::query_scalar("SELECT answer()").fetch_one(owner).await.expect("answer")
}

#[tokio::test]
async fn what_changed_is_applied_and_nothing_else() {
    let test = TestDb::create().await;
    let mut owner = test.conn(Roles::Owner).await;
    assert_eq!(schema_code_apply(&mut owner, SCHEMA_CODE).await.unwrap(), 0, "the template has them all");
    assert_eq!(apply(&mut owner, &[("test/answer.sql", answering(1))]).await.unwrap(), 1);
    assert_eq!(answer(&mut owner).await, 1);
    assert_eq!(apply(&mut owner, &[("test/answer.sql", answering(1))]).await.unwrap(), 0);
    assert_eq!(apply(&mut owner, &[("test/answer.sql", answering(2))]).await.unwrap(), 1);
    assert_eq!(answer(&mut owner).await, 2);
}

#[tokio::test]
async fn a_replica_of_the_last_release_does_not_put_its_functions_back() {
    let test = TestDb::create().await;
    let mut owner = test.conn(Roles::Owner).await;
    let (last, this) = ([("test/answer.sql", answering(1))], [("test/answer.sql", answering(2))]);
    apply(&mut owner, &last).await.unwrap();
    apply(&mut owner, &this).await.unwrap();
    assert_eq!(apply(&mut owner, &last).await.unwrap(), 0, "it was applied before, and another since");
    assert_eq!(answer(&mut owner).await, 2);
    assert_eq!(apply(&mut owner, &this).await.unwrap(), 0);
}

#[tokio::test]
async fn a_file_that_fails_is_named_and_leaves_everything_as_it_was() {
    let test = TestDb::create().await;
    let mut owner = test.conn(Roles::Owner).await;
    apply(&mut owner, &[("test/answer.sql", answering(1))]).await.unwrap();
    let broken = [("test/answer.sql", answering(2)), ("test/broken.sql", "CREATE FUNCTION".to_owned())];
    match apply(&mut owner, &broken).await {
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
    assert_eq!(apply(&mut owner, &files).await.unwrap(), 3);
    owner.execute("SELECT n, earlier() FROM a_view").await.unwrap();
}
