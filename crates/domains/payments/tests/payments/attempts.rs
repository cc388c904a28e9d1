//! Attempts to send a refund: what earlier releases left, what they do beside this one, and operators who settle meanwhile.

use payments::model::refund::RefundState;
use std::sync::Arc;

use chrono::TimeDelta;
use kernel::{
    Failure, Problem,
    ids::{OrgId, UserId},
    text::Reason,
};
use payments::{
    Payments,
    model::refund::{Refund, Settlement},
    provider::ProviderError,
    service::{refund_settlement::refund_settle, sending},
};
use pg::Roles;
use serde_json::json;
use testkit::{TestDb, eventually};

use crate::{
    kit::{Door, Kit},
    refunds::{ask, open_findings, send, unknown},
};

/// How a release from before migration 0027 takes a refund that is due: it knows of no `first_attempt_at` and of no lease.
async fn taken_by_previous_release(kit: &Kit) {
    let mut upkeep = kit.test.db.upkeep("as a worker of the previous release").await.unwrap();
    let taken = sqlx::query(
        "UPDATE refunds SET next_attempt_at = $1, attempts = attempts + 1
         WHERE id = (SELECT r.id FROM refunds r JOIN payments p ON p.id = r.payment_id
             WHERE r.state = 'pending' AND p.provider = 'simulated' AND r.next_attempt_at <= $2
             ORDER BY r.next_attempt_at LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED)",
    )
    .bind(kit.now() + TimeDelta::seconds(90))
    .bind(kit.now())
    .execute(upkeep.conn())
    .await
    .unwrap();
    assert_eq!(taken.rows_affected(), 1);
}

#[tokio::test]
async fn a_refund_that_a_replica_of_the_previous_release_sent_is_not_sent_twice() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    ask(&kit, payment, 2000).await.unwrap();
    // It called the provider, and was killed before it could write down the answer.
    taken_by_previous_release(&kit).await;
    assert!(kit.one::<bool>("SELECT first_attempt_at IS NOT NULL FROM refunds").await);
    // The provider has forgotten the key: whoever asks again pays again.
    kit.pass(TimeDelta::days(2));
    send(&kit).await;
    assert!(kit.provider.desk().refunds.is_empty(), "it was asked for a second time");
    assert!(kit.one::<bool>("SELECT unknown_since IS NOT NULL FROM refunds").await, "a person has to look");
    assert_eq!(open_findings(&kit).await, 1);
}

#[tokio::test]
async fn what_the_previous_release_took_a_moment_ago_is_asked_for_again_with_the_same_key() {
    let kit = Kit::running().await;
    let payment = kit.paid(5000, "pi_1").await;
    let refund = ask(&kit, payment, 2000).await.unwrap();
    taken_by_previous_release(&kit).await;
    kit.test.sql("UPDATE refunds SET next_attempt_at = now() - interval '1 second'").await;
    send(&kit).await;
    assert_eq!(kit.states("refunds").await, ["succeeded"]);
    assert_eq!(kit.provider.desk().refunds, [("pi_1".to_owned(), 2000, refund.id)]);
}

#[tokio::test]
async fn no_release_can_attempt_a_refund_without_a_trace() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    ask(&kit, payment, 2000).await.unwrap();
    taken_by_previous_release(&kit).await;
    kit.test.sql("UPDATE refunds SET first_attempt_at = NULL, state_reason = 'forgotten'").await;
    assert!(kit.one::<bool>("SELECT first_attempt_at IS NOT NULL FROM refunds").await);
}

/// A refund as a release from before migration 0027 left it.
struct Old {
    n: u32,
    state: &'static str,
    provider_refund: Option<&'static str>,
    attempts: i32,
    /// When it is due.
    due: &'static str,
}

async fn insert_old(test: &TestDb, old: &Old) {
    let provider_refund = old.provider_refund.map_or("NULL".to_owned(), |id| format!("'{id}'"));
    let (n, state, attempts, due) = (old.n, old.state, old.attempts, old.due);
    test.sql(&format!(
        "INSERT INTO refunds (id, org_id, payment_id, amount_minor, currency, destination, source, reason, state, state_reason,
             provider_refund, posting_id, next_attempt_at, attempts, correlation_id, created_at, updated_at)
         SELECT ('00000000-0000-0000-0000-0000000000' || lpad('{n}', 2, '0'))::uuid, org_id, id, 10, 'USD', 'card', 'operator', 'r',
             '{state}', 'before', {provider_refund}, gen_random_uuid(), {due}, {attempts}, gen_random_uuid(),
             now() - interval '5 days', now() FROM payments"
    ))
    .await;
}

#[derive(Debug, PartialEq, sqlx::FromRow)]
struct Migrated {
    attempts: i32,
    is_due: bool,
    is_attempted_since_creation: Option<bool>,
    is_unknown: bool,
}

async fn migrated(test: &TestDb, n: u32) -> Migrated {
    sqlx::query_as(sqlx::AssertSqlSafe(format!(
        "SELECT attempts, next_attempt_at <= now() AS is_due, first_attempt_at = created_at AS is_attempted_since_creation,
             unknown_since IS NOT NULL AS is_unknown
         FROM refunds WHERE id = ('00000000-0000-0000-0000-0000000000' || lpad('{n}', 2, '0'))::uuid"
    )))
    .fetch_one(&mut test.conn(Roles::Admin).await)
    .await
    .unwrap()
}

#[tokio::test]
async fn refunds_from_before_migration_0027_keep_what_is_known_of_their_sending() {
    let test = TestDb::migrated_until(26).await;
    let org: OrgId = test.db.ambient().id();
    // The top-up that it came from does not matter here.
    test.sql(&format!(
        "SET session_replication_role = replica;
         INSERT INTO payments (id, org_id, topup_id, provider, intent, amount_minor, currency, posting_id, paid_at, created_at)
             VALUES (gen_random_uuid(), '{}', gen_random_uuid(), 'simulated', 'pi_1', 9000, 'USD', gen_random_uuid(), now(), now())",
        org.uuid()
    ))
    .await;
    let far = "now() + interval '10 years'";
    let soon = "now() + interval '1 minute'";
    let (pending, re_4, re_5) = ("pending", Some("re_4"), Some("re_5"));
    let rows = [
        // Nobody took it yet.
        Old { n: 1, state: pending, provider_refund: None, attempts: 0, due: "now()" },
        // Given up on when it was first taken, twenty hours after it was asked for.
        Old { n: 2, state: pending, provider_refund: None, attempts: 1, due: far },
        // Given up on after it was asked for several times.
        Old { n: 3, state: pending, provider_refund: None, attempts: 7, due: far },
        // The provider has it, and says no more.
        Old { n: 4, state: pending, provider_refund: re_4, attempts: 0, due: far },
        Old { n: 5, state: "succeeded", provider_refund: re_5, attempts: 3, due: soon },
        // Being asked for.
        Old { n: 6, state: pending, provider_refund: None, attempts: 2, due: soon },
        Old { n: 7, state: "failed", provider_refund: None, attempts: 1, due: soon },
    ];
    for row in &rows {
        insert_old(&test, row).await;
    }
    test.migrate_until(27).await;
    let expected = |attempts, is_due, since, is_unknown| Migrated {
        attempts,
        is_due,
        is_attempted_since_creation: since,
        is_unknown,
    };
    assert_eq!(migrated(&test, 1).await, expected(0, true, None, false), "never attempted: it is sent");
    assert_eq!(
        migrated(&test, 2).await,
        expected(0, true, None, false),
        "the provider never heard of it: it is sent"
    );
    assert_eq!(migrated(&test, 3).await, expected(7, false, Some(true), true), "a person settles it");
    assert_eq!(
        migrated(&test, 4).await,
        expected(0, false, Some(true), false),
        "the provider is asked after it"
    );
    assert_eq!(migrated(&test, 5).await, expected(3, false, Some(true), false));
    assert_eq!(
        migrated(&test, 6).await,
        expected(2, false, Some(true), false),
        "its key counts since it was made"
    );
    assert_eq!(migrated(&test, 7).await, expected(1, false, Some(true), false));

    // A replica of the release before goes on after 0027 and attempts the first one without a trace.
    test.sql("UPDATE refunds SET attempts = 1 WHERE provider_refund IS NULL AND attempts = 0").await;
    assert_eq!(migrated(&test, 1).await, expected(1, true, None, false));
    test.migrate_until(i64::MAX).await;
    assert_eq!(
        migrated(&test, 1).await,
        expected(1, true, Some(true), false),
        "attempted at an unknown time"
    );
    assert_eq!(migrated(&test, 6).await, expected(2, false, Some(true), false));
}

async fn settle(kit: &Kit, payments: &Payments, refund: &Refund, by: u128) -> Result<Refund, Problem> {
    let mut tx = kit.write(kit.admin()).await;
    let (by, reason) =
        (UserId::from(uuid::Uuid::from_u128(by)), Reason::parse("seen at the provider").unwrap());
    match refund_settle(payments, &mut tx, by, refund.id, Settlement::NotSent, &reason).await {
        Ok(done) => {
            tx.commit(None).await.unwrap();
            Ok(done)
        }
        Err(Failure::Problem(problem)) => Err(problem),
        Err(other) => panic!("{other:?}"),
    }
}

fn assert_in_progress(refused: &Problem, refund: &Refund) {
    assert_eq!((refused.code.status(), &refused.details["reason"]), (409, &json!("attempt_in_progress")));
    let seconds = refused.details["wait_seconds"].as_u64().unwrap();
    assert!((1..=90).contains(&seconds) && refused.retry_after_seconds == Some(seconds), "{seconds}");
    let then = refused.suggestion.as_deref().unwrap();
    assert!(then.contains(&format!("at most {seconds} seconds")), "{then}");
    assert!(then.contains(&format!("refunds show {}", refund.id)), "{then}");
}

#[tokio::test]
async fn a_refund_that_a_worker_is_sending_cannot_be_settled_as_not_sent() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    let refund = ask(&kit, payment, 2000).await.unwrap();
    let door = Arc::new(Door::default());
    kit.provider.desk().door = Some(door.clone());
    let payments = kit.payments.clone();
    let sender = tokio::spawn(async move { sending::send_next(&payments).await.unwrap() });
    door.entered.acquire().await.unwrap().forget();

    // Somebody took the provider out of the configuration of this replica and believes that nobody sends any more.
    let replica = kit.without_provider();
    assert_in_progress(&settle(&kit, &replica, &refund, 7).await.unwrap_err(), &refund);
    assert_eq!(kit.has().await, (3000, 0), "nothing went back");

    door.go.add_permits(1);
    assert!(sender.await.unwrap());
    assert_eq!(kit.states("refunds").await, ["succeeded"]);
    let refused = settle(&kit, &replica, &refund, 7).await.unwrap_err();
    assert_eq!(refused.details["state"], "succeeded");
    assert_eq!(kit.has().await, (3000, 0));
}

#[tokio::test]
async fn an_attempt_that_has_ended_can_be_settled_at_once_and_a_dead_one_when_its_lease_is_over() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    let refund = ask(&kit, payment, 2000).await.unwrap();
    let replica = kit.without_provider();
    // The worker died while it was sending.
    taken_by_previous_release(&kit).await;
    assert_in_progress(&settle(&kit, &replica, &refund, 7).await.unwrap_err(), &refund);
    kit.test.sql("UPDATE refunds SET leased_until = now() - interval '1 millisecond'").await;
    assert_eq!(settle(&kit, &replica, &refund, 7).await.unwrap().state, RefundState::Failed);
    assert_eq!(kit.has().await, (5000, 0));

    let refund = ask(&kit, payment, 2000).await.unwrap();
    kit.provider.desk().faults.push(ProviderError::Unavailable("away".to_owned()));
    send(&kit).await;
    assert_eq!(
        settle(&kit, &replica, &refund, 7).await.unwrap().state,
        RefundState::Failed,
        "its attempt has ended"
    );
    assert_eq!(kit.has().await, (5000, 0));
}

#[tokio::test]
async fn a_worker_does_not_send_what_is_being_settled() {
    let kit = Kit::new().await;
    let refund = unknown(&kit).await;
    // As a replica of the previous release would take it: it does not know of `unknown_since`.
    kit.test.sql("UPDATE refunds SET next_attempt_at = '2020-01-01', unknown_since = NULL, first_attempt_at = '2031-05-08'").await;
    let calls = kit.provider.desk().calls;
    let replica = kit.without_provider();
    let mut tx = kit.write(kit.admin()).await;
    let (by, reason) =
        (UserId::from(uuid::Uuid::from_u128(7)), Reason::parse("seen at the provider").unwrap());
    refund_settle(&replica, &mut tx, by, refund.id, Settlement::NotSent, &reason).await.unwrap();
    assert!(!sending::send_next(&kit.payments).await.unwrap(), "it is locked, so nobody takes it");
    tx.commit(None).await.unwrap();
    send(&kit).await;
    let asked = kit.provider.desk().calls;
    assert_eq!((asked, kit.has().await), (calls, (5000, 0)));
}

/// Statements that renew a lease wait for the advisory lock 42.
const STALL: &str = "
    CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_query() LIKE 'UPDATE refunds SET leased_until%' THEN PERFORM pg_advisory_xact_lock_shared(42); END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER stall BEFORE UPDATE ON refunds FOR EACH STATEMENT EXECUTE FUNCTION stall()";

#[tokio::test]
async fn a_worker_that_stalled_before_the_call_does_not_send_what_another_gave_up_since() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    ask(&kit, payment, 2000).await.unwrap();
    kit.test.sql(STALL).await;
    let mut holder = kit.test.conn(Roles::Admin).await;
    sqlx::query("SELECT pg_advisory_lock(42)").execute(&mut holder).await.unwrap();
    let payments = kit.payments.clone();
    let stalled = tokio::spawn(async move { sending::send_next(&payments).await.unwrap() });
    let waits = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
         WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database()";
    eventually("the worker stalls", || async { (kit.one::<i64>(waits).await == 1).then_some(()) }).await;

    kit.pass(TimeDelta::hours(21));
    assert!(sending::send_next(&kit.payments).await.unwrap());
    assert!(kit.one::<bool>("SELECT unknown_since IS NOT NULL FROM refunds").await);
    sqlx::query("SELECT pg_advisory_unlock(42)").execute(&mut holder).await.unwrap();
    assert!(stalled.await.unwrap());
    assert!(kit.provider.desk().refunds.is_empty(), "it was sent all the same");
}
