//! A tick that is cut off anywhere is done again, and every window is charged once.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use super::kit::Kit;

/// Kills its own database session at the n-th place where a statement that writes begins or ends, and at the n-th check
/// of the commit. Sequences do not roll back, so the count goes on after the kill.
pub const FUSE: &str = "
    CREATE SEQUENCE fuse_count;
    CREATE TABLE fuse_at (place bigint);
    INSERT INTO fuse_at VALUES (0);
    CREATE FUNCTION fuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$
    BEGIN
        IF nextval('fuse_count') = (SELECT place FROM fuse_at) THEN
            PERFORM pg_terminate_backend(pg_backend_pid());
            PERFORM pg_sleep(1);
        END IF;
        RETURN NULL;
    END $$;
    DO $$ DECLARE t text;
    BEGIN
        FOREACH t IN ARRAY ARRAY['ledger_postings', 'ledger_lines', 'ledger_chains', 'usage_records', 'meters', 'billing_accounts',
            'budget_progress', 'audit_logs', 'outbox_events'] LOOP
            EXECUTE format('CREATE TRIGGER a_fuse_before BEFORE INSERT OR UPDATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION fuse()', t);
            EXECUTE format('CREATE TRIGGER z_fuse_after AFTER INSERT OR UPDATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION fuse()', t);
        END LOOP;
    END $$;
    CREATE CONSTRAINT TRIGGER z_fuse_commit AFTER INSERT ON ledger_postings DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION fuse();";

async fn with_work() -> Kit {
    let kit = Kit::new().await;
    kit.policy("billing.launch_hold_seconds", 600).await;
    let (first, second) = (kit.launch(25_037, 8).await, kit.launch(311, 1).await);
    let sql = format!(
        "INSERT INTO budgets VALUES ('{}', '{}', 10, 80, 'notify', 1, now(), '2031-05-01')",
        kit.project.uuid(),
        kit.org.uuid()
    );
    kit.test.sql(&sql).await;
    kit.pass(97);
    kit.close(second).await;
    kit.pass(60);
    // Accrued too far, and to be taken back.
    kit.pass(3600);
    kit.tick().await;
    kit.clock.advance(chrono::TimeDelta::seconds(-1800));
    kit.close(first).await;
    kit.launch(9_999, 3).await;
    kit.pass(121);
    kit
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_statement_boundary_each_window_is_charged_once() {
    let kit = with_work().await;
    kit.test.sql(FUSE).await;
    let mut killed = 0;
    for place in 1..200 {
        // Something is due in every turn.
        kit.pass(61);
        let last = kit.launch(777, 1).await;
        kit.pass(30);
        kit.close(last).await;
        kit.test
            .sql(&format!("SELECT setval('fuse_count', 1, false); UPDATE fuse_at SET place = {place}"))
            .await;
        let outcome = kit.try_tick().await;
        kit.test.sql("UPDATE fuse_at SET place = 0").await;
        kit.holds().await;
        if outcome.is_ok() {
            break;
        }
        killed += 1;
        kit.tick().await;
        kit.holds().await;
    }
    assert!(killed > 20, "only {killed} places to be killed at");
    assert_eq!(kit.one::<i64>("SELECT count(*) FROM meters WHERE state = 'closed'").await, 0);
    assert_eq!(kit.events_emitted("budget_crossed").await, 1);
}

/// Polls a future so many times and then drops it.
struct Cut<'a, F> {
    future: Pin<&'a mut F>,
    polls: usize,
}

impl<F: Future> Future for Cut<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        self.future.as_mut().poll(context).map(Some)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_goes_away_at_any_await_leaves_nothing_half_done() {
    let kit = with_work().await;
    let mut finished = false;
    for polls in 1..400 {
        kit.pass(61);
        let future = pin!(kit.try_tick());
        let outcome = Cut { future, polls }.await;
        kit.holds().await;
        if let Some(outcome) = outcome {
            outcome.unwrap();
            finished = true;
            break;
        }
    }
    assert!(finished, "a tick does not end");
    kit.tick().await;
    kit.holds().await;
    assert_eq!(kit.one::<i64>("SELECT count(*) FROM meters WHERE state = 'closed'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_organization_that_cannot_be_accrued_keeps_nobody_else_from_it() {
    let kit = Kit::new().await;
    let sick = kit.another_tenant("sick", 1_000).await;
    let (well, ill) = (kit.launch(3600, 1).await, kit.launch_of(sick, 3600, 1).await);
    // The ledger of one organization refuses everything.
    kit.test
        .sql(&format!(
            "CREATE FUNCTION refuse_one() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF NEW.org_id = '{}' THEN RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$;
             CREATE TRIGGER refuse_one BEFORE INSERT ON ledger_postings FOR EACH ROW EXECUTE FUNCTION refuse_one()",
            sick.org.uuid()
        ))
        .await;
    kit.pass(120);
    kit.tick().await;
    assert_eq!((kit.posted(well).await, kit.posted(ill).await), (120, 0));
    kit.test.sql("DROP TRIGGER refuse_one ON ledger_postings").await;
    kit.tick().await;
    assert_eq!(kit.posted(ill).await, 120);
    kit.holds().await;
}
