//! What a write transaction promises, against a real Postgres.

use std::sync::Arc;

use kernel::{
    CorrelationId, Event, Permission, Role, Stream,
    ids::{OrgId, UserId},
};
use pg::{
    Actor, ActorKind, Begin, IdempotentRequest, Origin, Permit, Roles, Scope, StoredResponse, Swap, WriteTx,
};
use sqlx::Executor as _;
use testkit::{TestDb, eventually};
use uuid::Uuid;

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Happened {
    what: &'static str,
}

impl Event for Happened {
    const TYPE: &'static str = "test.happened";
    const STREAM: Stream = Stream::Identity;
    const SUMMARY: &'static str = "Something happened.";
}

fn permit_for(org: OrgId, user: UserId) -> Permit {
    let actor = Actor { kind: ActorKind::User, id: Some(user.uuid()), role: "org_owner" };
    let granted =
        Role::OrgOwner.permissions().authorize(Permission::ProjectCreate).expect("an owner creates projects");
    Permit::granted(actor, Scope::Org(org), Origin::internal(CorrelationId(Uuid::from_u128(1))), granted)
}

async fn make_org(test: &TestDb, slug: &str) -> (OrgId, UserId) {
    let (org, user) = (test.db.ambient().uuid(), test.db.ambient().uuid());
    let mut conn = test.conn(Roles::Admin).await;
    for sql in [
        format!(
            "INSERT INTO organizations (id, kind, slug, name, created_at, updated_at) VALUES ('{org}', 'enterprise', '{slug}', '{slug}', now(), now())"
        ),
        format!(
            "INSERT INTO users (id, issuer, subject, name, created_at, updated_at) VALUES ('{user}', 'i', '{slug}', '{slug}', now(), now())"
        ),
        format!(
            "INSERT INTO tenant_memberships (org_id, user_id, role, created_at, updated_at) VALUES ('{org}', '{user}', 'owner', now(), now())"
        ),
    ] {
        conn.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    }
    (OrgId::from(org), UserId::from(user))
}

async fn insert_project(tx: &mut WriteTx, org: OrgId, slug: &str) {
    let id = tx.db().ambient().uuid();
    sqlx::query("INSERT INTO projects (id, org_id, slug, name, created_at, updated_at) VALUES ($1, $2, $3, $3, now(), now())")
        .bind(id)
        .bind(org.uuid())
        .bind(slug)
        .execute(tx.conn())
        .await
        .unwrap();
    tx.record("project", id, None::<&()>, Some(&slug)).unwrap();
    tx.emit(&Happened { what: "project" }).unwrap();
}

/// (projects, audit rows, outbox rows, idempotency records)
async fn counts(test: &TestDb) -> (i64, i64, i64, i64) {
    sqlx::query_as(
        "SELECT (SELECT count(*) FROM projects), (SELECT count(*) FROM audit_logs), (SELECT count(*) FROM outbox_events),
                (SELECT count(*) FROM idempotency_records)",
    )
    .fetch_one(&mut test.conn(Roles::Admin).await)
    .await
    .unwrap()
}

fn claim(user: UserId, key: &str, body: &str) -> Option<IdempotentRequest> {
    let request_hash = kernel::digest::sha256(body);
    Some(IdempotentRequest {
        principal_id: user.uuid(),
        endpoint: "project_create",
        key: key.to_owned(),
        request_hash,
    })
}

fn response() -> Option<StoredResponse> {
    Some(StoredResponse { status: 201, body: b"made".to_vec() })
}

#[tokio::test]
async fn a_commit_writes_effect_audit_event_and_stored_response_together() {
    let test = TestDb::create().await;
    let (org, user) = make_org(&test, "a").await;
    let begun =
        test.db.write_once(permit_for(org, user), "project.create", claim(user, "k", "b")).await.unwrap();
    let Begin::New(mut tx) = begun else { panic!("a fresh key is claimed") };
    insert_project(&mut tx, org, "p").await;
    assert_eq!(tx.commit(response()).await.unwrap().audit_seq, 1);
    assert_eq!(counts(&test).await, (1, 1, 1, 1));
    let row: (String, String, Option<Uuid>, String) =
        sqlx::query_as("SELECT action, result, actor_id, target_kind FROM audit_logs")
            .fetch_one(&mut test.conn(Roles::Admin).await)
            .await
            .unwrap();
    assert_eq!(
        row,
        ("project.create".to_owned(), "allowed".to_owned(), Some(user.uuid()), "project".to_owned())
    );
}

#[tokio::test]
async fn a_dropped_transaction_leaves_nothing_and_holds_no_lock() {
    let test = TestDb::create().await;
    let (org, user) = make_org(&test, "a").await;
    for _ in 0..40 {
        let begun =
            test.db.write_once(permit_for(org, user), "project.create", claim(user, "k", "b")).await.unwrap();
        let Begin::New(mut tx) = begun else { panic!("the key was never committed") };
        insert_project(&mut tx, org, "p").await;
        drop(tx);
    }
    assert_eq!(counts(&test).await, (0, 0, 0, 0));
    eventually("no transaction is left open", || async {
        let open: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
        )
        .fetch_one(&mut test.conn(Roles::Admin).await)
        .await
        .unwrap();
        (open == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn fifty_concurrent_claims_of_one_key_have_one_effect_and_the_same_answer() {
    let test = Arc::new(TestDb::create().await);
    let (org, user) = make_org(&test, "a").await;
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let test = test.clone();
            tokio::spawn(async move {
                match test
                    .db
                    .write_once(permit_for(org, user), "project.create", claim(user, "k", "b"))
                    .await
                    .unwrap()
                {
                    Begin::New(mut tx) => {
                        insert_project(&mut tx, org, "p").await;
                        tx.commit(response()).await.unwrap();
                        true
                    }
                    Begin::Replay(stored) => {
                        assert_eq!(Some(stored), response());
                        false
                    }
                    Begin::KeyReused => panic!("it is the same request"),
                }
            })
        })
        .collect();
    let mut effects = 0;
    for task in tasks {
        effects += i32::from(task.await.unwrap());
    }
    assert_eq!(effects, 1);
    assert_eq!(counts(&test).await, (1, 1, 1, 1));
    let other =
        test.db.write_once(permit_for(org, user), "project.create", claim(user, "k", "other")).await.unwrap();
    assert!(matches!(other, Begin::KeyReused));
}

#[tokio::test]
async fn a_query_without_its_tenant_filter_sees_only_the_scope_s_rows_on_reused_connections() {
    let test = TestDb::create().await;
    let orgs = [make_org(&test, "a").await, make_org(&test, "b").await, make_org(&test, "c").await];
    for (org, user) in orgs {
        let mut tx = test.db.write(permit_for(org, user), "project.create").await.unwrap();
        insert_project(&mut tx, org, "p").await;
        tx.commit(None).await.unwrap();
    }
    // A pool of one connection: every read takes over the connection of another tenant.
    let db = pg::Db::new(test.connect.clone(), 1, 1, kernel::Ambient::system());
    for round in 0..30 {
        let (org, user) = orgs[(round * 7 + round / 3) % 3];
        let mut read = db.read(&permit_for(org, user)).await.unwrap();
        let seen: Vec<Uuid> =
            sqlx::query_scalar("SELECT org_id FROM projects").fetch_all(read.conn()).await.unwrap();
        assert_eq!(seen, [org.uuid()]);
        let members: Vec<Uuid> = sqlx::query_scalar("SELECT user_id FROM tenant_memberships")
            .fetch_all(read.conn())
            .await
            .unwrap();
        assert_eq!(members, [user.uuid()]);
        let audit: Vec<Uuid> = sqlx::query_scalar("SELECT DISTINCT org_id FROM audit_logs")
            .fetch_all(read.conn())
            .await
            .unwrap();
        assert_eq!(audit, [org.uuid()]);
        drop(read);
        // Nor can it write into another tenant.
        let (other, _) = orgs[(round * 7 + round / 3 + 1) % 3];
        let mut tx = db.write(permit_for(org, user), "project.steal").await.unwrap();
        let stolen =
            sqlx::query("DELETE FROM projects WHERE org_id = $1").bind(other.uuid()).execute(tx.conn()).await;
        assert_eq!(stolen.unwrap().rows_affected(), 0);
        let given =
            sqlx::query("UPDATE projects SET org_id = $1").bind(other.uuid()).execute(tx.conn()).await;
        assert!(given.is_err());
        tx.roll_back().await;
    }
}

#[tokio::test]
async fn no_service_role_can_change_what_is_written_once() {
    let test = TestDb::create().await;
    let (org, user) = make_org(&test, "a").await;
    let mut tx = test.db.write(permit_for(org, user), "project.create").await.unwrap();
    insert_project(&mut tx, org, "p").await;
    tx.commit(None).await.unwrap();
    for role in [Roles::App, Roles::System, Roles::Owner] {
        let mut conn = test.conn(role).await;
        for sql in [
            "UPDATE audit_logs SET action = 'x'",
            "DELETE FROM audit_logs",
            "TRUNCATE audit_logs",
            "TRUNCATE audit_logs CASCADE",
        ] {
            let result = conn.execute(sql).await;
            // The app role sees no row without a scope, but it must be refused, not merely find nothing.
            assert!(result.is_err(), "{role:?}: {sql}");
        }
    }
    for role in [Roles::App, Roles::System] {
        let mut conn = test.conn(role).await;
        for sql in [
            "INSERT INTO audit_logs SELECT * FROM audit_logs",
            "UPDATE audit_chains SET seq = 0",
            "DELETE FROM audit_chains",
            "UPDATE idempotency_records SET status = 500",
            "UPDATE outbox_events SET payload = '{}'",
            "INSERT INTO outbox_events (event_id) VALUES (gen_random_uuid())",
            "ALTER TABLE audit_logs DISABLE TRIGGER ALL",
            "DROP TRIGGER audit_append_only ON audit_logs",
            "SET ROLE gpuaas_owner",
        ] {
            assert!(conn.execute(sql).await.is_err(), "{role:?}: {sql}");
        }
    }
    assert_eq!(counts(&test).await.1, 1);
}

#[tokio::test]
async fn a_lost_race_is_told_apart_from_a_missing_row() {
    assert_eq!(Swap::from_update(Some(1), None), Swap::Updated(1));
    let stale = Swap::<i32>::from_update(None, Some(7)).or_problem("project").unwrap_err();
    assert_eq!(
        (stale.code, &stale.details["current_version"]),
        (kernel::Code::Conflict, &serde_json::json!(7))
    );
    let missing = Swap::<i32>::from_update(None, None).or_problem("project").unwrap_err();
    assert_eq!(missing.code, kernel::Code::NotFound);
}

#[tokio::test]
async fn several_replicas_starting_at_once_migrate_an_empty_database_once() {
    let test = TestDb::empty().await;
    let replica = || async {
        pg::bootstrap(&test.connect).await.unwrap();
        pg::migrate(&test.connect).await.unwrap();
    };
    tokio::join!(replica(), replica(), replica(), replica(), replica());
    let applied: i64 = sqlx::query_scalar("SELECT count(*) FROM _sqlx_migrations WHERE success")
        .fetch_one(&mut test.conn(Roles::Owner).await)
        .await
        .unwrap();
    assert_eq!(usize::try_from(applied).unwrap(), pg::MIGRATOR.iter().count());
}

/// A process was killed while it built an index beside the running system: the next one builds it anew.
#[tokio::test]
async fn an_index_whose_build_was_interrupted_is_built_by_the_next_start() {
    let test = TestDb::create().await;
    test.sql(
        "SET allow_system_table_mods = on;
         UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'deliveries_due_by_webhook'::regclass;
         DELETE FROM _sqlx_migrations WHERE version = 30",
    )
    .await;
    pg::migrate(&test.connect).await.unwrap();
    let valid: bool = sqlx::query_scalar(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = 'deliveries_due_by_webhook'::regclass",
    )
    .fetch_one(&mut test.conn(Roles::Owner).await)
    .await
    .unwrap();
    assert!(valid);
}

#[tokio::test]
async fn committed_invalidations_reach_this_replica_before_commit_returns_and_others_by_notification() {
    let test = TestDb::create().await;
    let (org, user) = make_org(&test, "a").await;
    let heard_here = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = heard_here.clone();
    test.db.on_invalidate(move |key| sink.lock().unwrap().push(key.to_owned()));
    let other = pg::Db::new(test.connect.clone(), 2, 2, kernel::Ambient::system());
    let heard_there = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = heard_there.clone();
    other.on_invalidate(move |key| sink.lock().unwrap().push(key.to_owned()));
    let (_wake, listening) = other.listen();
    eventually("the other replica listens", || async {
        (!heard_there.lock().unwrap().is_empty()).then_some(())
    })
    .await;

    let mut tx = test.db.write(permit_for(org, user), "thing.change").await.unwrap();
    tx.invalidate("thing:1".to_owned());
    tx.commit(None).await.unwrap();
    assert_eq!(*heard_here.lock().unwrap(), ["thing:1"]);
    eventually("the other replica hears it", || async {
        heard_there.lock().unwrap().iter().any(|key| key == "thing:1").then_some(())
    })
    .await;
    listening.abort();
}

#[tokio::test]
async fn stored_responses_are_forgotten_after_their_time_and_not_before() {
    let test = TestDb::create().await;
    let (org, user) = make_org(&test, "a").await;
    for key in ["old", "new"] {
        let Begin::New(mut tx) =
            test.db.write_once(permit_for(org, user), "project.create", claim(user, key, "b")).await.unwrap()
        else {
            panic!("a fresh key is claimed")
        };
        insert_project(&mut tx, org, key).await;
        tx.commit(response()).await.unwrap();
    }
    let mut conn = test.conn(Roles::Admin).await;
    let age = "UPDATE idempotency_records SET created_at = created_at - interval '8 days' WHERE key = 'old'";
    conn.execute(age).await.unwrap();
    let cutoff = test.db.ambient().now() - chrono::TimeDelta::days(7);
    assert_eq!(pg::idempotency_forget(&test.db, cutoff).await.unwrap(), 1);
    assert_eq!(pg::idempotency_forget(&test.db, cutoff).await.unwrap(), 0);
    assert_eq!(counts(&test).await.3, 1);
}

#[tokio::test]
async fn a_read_cannot_write_and_a_write_can_also_after_the_connection_was_lent_for_upkeep() {
    let test = TestDb::create().await;
    let (org, user) = make_org(&test, "a").await;
    let db = pg::Db::new(test.connect.clone(), 1, 1, kernel::Ambient::system());
    let system = Permit::system("a test", Origin::internal(CorrelationId(Uuid::nil())));
    for _ in 0..3 {
        for permit in [&permit_for(org, user), &system] {
            let mut read = db.read(permit).await.unwrap();
            let written =
                sqlx::query("UPDATE projects SET name = 'x'").execute(read.conn()).await.unwrap_err();
            let code = written.as_database_error().and_then(|e| e.code()).map(|c| c.into_owned());
            assert_eq!(code.as_deref(), Some("25006"), "refused because it is read-only: {written}");
        }
        let mut upkeep = db.upkeep("a test").await.unwrap();
        sqlx::query("DELETE FROM idempotency_records").execute(upkeep.conn()).await.unwrap();
        drop(upkeep);
        let mut tx = db.write(permit_for(org, user), "project.create").await.unwrap();
        insert_project(&mut tx, org, &db.ambient().uuid().simple().to_string()).await;
        tx.commit(None).await.unwrap();
    }
}
