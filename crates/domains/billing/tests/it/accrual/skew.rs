//! The clock of a process steps, and the database's does not.

use super::kit::Kit;

const LAST_POSTED: &str = "SELECT max(posted_at) FROM ledger_postings";

/// The database stays at the time at which the kit began, plus so many seconds, whatever a process says.
async fn database_at(kit: &Kit, seconds: i64) {
    let sql = format!("timestamptz '2031-05-06T07:00:00.25Z' + interval '{seconds} seconds'");
    kit.test.ledger_clock(&sql).await;
}

#[tokio::test]
async fn a_clock_that_steps_ahead_stops_accrual_with_a_finding_and_charges_nobody() {
    let kit = Kit::new().await;
    let machine = kit.launch(3600, 1).await;
    kit.pass(120);
    kit.tick().await;
    assert_eq!(kit.posted(machine).await, 120);
    database_at(&kit, 120).await;
    kit.pass(3600);
    let ticked = kit.tick().await;
    assert!(ticked.clock_skewed);
    assert_eq!((ticked.windows, kit.posted(machine).await), (0, 120));
    let open = "SELECT (detail->>'skew_seconds')::bigint FROM billing_findings WHERE kind = 'clock_skew' AND resolved_at IS NULL";
    assert_eq!(kit.one::<i64>(open).await, 3600);
    // Set right, it goes on and the finding is over.
    kit.pass(-3600 + 60);
    database_at(&kit, 180).await;
    let ticked = kit.tick().await;
    assert_eq!((ticked.clock_skewed, kit.posted(machine).await), (false, 180));
    let count = "SELECT count(*) FROM billing_findings WHERE resolved_at IS NULL";
    assert_eq!(kit.one::<i64>(count).await, 0);
    kit.holds().await;
}

#[tokio::test]
async fn a_clock_that_is_far_behind_stops_accrual_as_well() {
    let kit = Kit::new().await;
    database_at(&kit, 31).await;
    assert!(kit.tick().await.clock_skewed);
    database_at(&kit, 30).await;
    assert!(!kit.tick().await.clock_skewed);
    kit.policy("billing.clock_skew_seconds", 10).await;
    assert!(kit.tick().await.clock_skewed);
}

#[tokio::test]
async fn within_the_tolerance_the_database_still_bounds_what_is_posted_and_when() {
    let kit = Kit::new().await;
    let (runs, ends) = (kit.launch(3600, 1).await, kit.launch(3600, 1).await);
    kit.policy("billing.window_seconds", 10).await;
    database_at(&kit, 60).await;
    // The process is 20 seconds ahead: what it does is stamped and charged by the database's clock.
    kit.pass(80);
    kit.close(ends).await;
    kit.fund(kit.org, 1).await;
    assert!(!kit.tick().await.clock_skewed);
    assert_eq!((kit.posted(runs).await, kit.posted(ends).await), (60, 60));
    assert_eq!(kit.meter_state(ends).await, "settled");
    let late = kit.launch(3600, 1).await;
    let begun = format!("SELECT opened_at::text FROM meters WHERE allocation_id = '{}'", late.uuid());
    assert_eq!(kit.one::<String>(&begun).await, "2031-05-06 07:01:00+00");
    let last: chrono::DateTime<chrono::Utc> = kit.one(LAST_POSTED).await;
    assert!(last <= "2031-05-06T07:01:00.25Z".parse::<chrono::DateTime<chrono::Utc>>().unwrap(), "{last}");
    kit.holds().await;
}

#[tokio::test]
async fn a_skewed_process_that_takes_a_payment_does_not_think_the_balance_used_up() {
    let kit = Kit::new().await;
    kit.launch(3600, 100).await;
    database_at(&kit, 0).await;
    // Three hours at 3600 a second would be more than there is.
    kit.pass(3 * 3600);
    kit.fund(kit.org, 1).await;
    assert_ne!(kit.state().await, "depleted");
    assert_eq!(kit.events_emitted("balance_depleted").await, 0);
}

#[tokio::test]
async fn a_process_that_is_ahead_gives_back_nothing_beyond_the_time_of_the_database() {
    let kit = Kit::new().await;
    kit.policy("billing.credit_approval_minor", 1_000_000).await;
    let (start, had) = (kit.now(), kit.total().await);
    let (past, lasts) = (kit.launch(3600, 1).await, kit.launch(3600, 1).await);
    database_at(&kit, 60).await;
    kit.pass(3600);
    // An hour by the process, a minute by the database.
    kit.sick(past, start, Some(kit.now())).await;
    let finding = kit.sick(lasts, kit.now(), None).await;
    assert_eq!((kit.posted(past).await, kit.posted(lasts).await), (0, 60));
    assert_eq!(kit.total().await, had - 60);
    let ends = "SELECT max(coalesce(resumed_at, since))::text FROM meter_pauses";
    assert_eq!(kit.one::<String>(ends).await, "2031-05-06 07:01:00+00");
    // Resolved two minutes after the start, by a process that is still ahead.
    database_at(&kit, 120).await;
    kit.healed(finding).await;
    assert_eq!(kit.one::<String>(ends).await, "2031-05-06 07:02:00+00");
    database_at(&kit, 180).await;
    kit.pass(-3600 + 180);
    kit.tick().await;
    assert_eq!((kit.posted(past).await, kit.posted(lasts).await), (120, 120));
    // The minute for which it stood still was not charged, and does not come back.
    kit.sick(lasts, start, Some(kit.now())).await;
    assert_eq!((kit.posted(lasts).await, kit.total().await), (0, had - 120));
    kit.holds().await;
}

#[tokio::test]
async fn no_function_can_charge_use_that_has_not_happened() {
    let kit = Kit::new().await;
    let machine = kit.launch(3600, 1).await;
    database_at(&kit, 60).await;
    let ahead = format!(
        "SELECT sum(accrued)::bigint FROM meters_accrue(ARRAY['{}'::uuid], ARRAY[gen_random_uuid()], now() + interval '20 years',
             now() + interval '20 years', 10, gen_random_uuid())",
        kit.org.uuid()
    );
    assert_eq!(kit.one::<Option<i64>>(&ahead).await, Some(1));
    assert_eq!(kit.posted(machine).await, 60);
    assert_eq!(kit.one::<Option<i64>>(&ahead).await, None, "nothing is due");
    let meter: uuid::Uuid = kit.one("SELECT id FROM meters").await;
    let mut admin = kit.test.conn(pg::Roles::Admin).await;
    let refused = sqlx::query(
        "INSERT INTO usage_records (org_id, meter_id, window_start, window_end, kind, amount_minor, carry, posted_at)
         VALUES ($1, $2, '2031-05-06T07:30:00Z', '2031-05-06T08:00:00Z', 'usage', 1, 0, now())",
    )
    .bind(kit.org.uuid())
    .bind(meter)
    .execute(&mut admin)
    .await
    .unwrap_err();
    assert_eq!(pg::constraint_violated(&refused), Some("usage_within_clock"), "{refused}");
    // The functions that services call are not theirs to replace.
    for role in [pg::Roles::App, pg::Roles::System] {
        let mut service = kit.test.conn(role).await;
        let replace =
            "CREATE OR REPLACE FUNCTION ledger_clock(p_claimed timestamptz) RETURNS timestamptz LANGUAGE sql
            AS $$ SELECT p_claimed $$";
        assert!(sqlx::query(replace).execute(&mut service).await.is_err());
    }
}
