use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use bus::{ConsumeError, Consumer as _, Reconciler, Transport as _};
use kernel::{CorrelationId, event::Envelope};
use pg::{Origin, Permit};
use testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::support::{Faults, Faulty, Fixture, Gate, Pinged, Recorder, once_each};

const PAST_THE_LEASE: Duration = Duration::from_secs(61);

#[tokio::test]
async fn a_lost_ack_after_the_effect_gives_one_effect() {
    let fixture = Fixture::create().await;
    let faulty = Arc::new(Faulty { inner: fixture.transport(), faults: Faults::default() });
    faulty.faults.lose_acks.store(1, Ordering::SeqCst);
    let recorder = Recorder::good();
    let runner = fixture.bus_over(faulty).runner(recorder.registered());
    fixture.publish([1]).await;

    assert_eq!(runner.run_once().await.unwrap(), 1);
    assert_eq!(fixture.effects().await, once_each([1]));
    assert_eq!(fixture.count("SELECT count(*) FROM bus_deliveries").await, 1, "the ack was lost");
    assert_eq!(runner.run_once().await.unwrap(), 0, "the lease still holds");

    fixture.pass(PAST_THE_LEASE);
    assert_eq!(runner.run_once().await.unwrap(), 1, "delivered again");
    assert_eq!(fixture.effects().await, once_each([1]));
    assert_eq!(recorder.calls(), 1, "the handler did not run again");
    assert_eq!(fixture.count("SELECT count(*) FROM bus_deliveries").await, 0);
}

#[tokio::test]
async fn a_worker_that_dies_before_its_commit_leaves_no_effect_and_the_message_comes_again() {
    let fixture = Fixture::create().await;
    let gate = Gate::shut();
    fixture.publish([1]).await;
    let dying = fixture.bus().runner(Recorder::gated(&gate).registered());
    let task = tokio::spawn(async move { dying.run_once().await });
    gate.wait_entered().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(fixture.effects().await.is_empty());

    fixture.pass(PAST_THE_LEASE);
    let runner = fixture.bus().runner(Recorder::good().registered());
    assert_eq!(runner.run_once().await.unwrap(), 1);
    assert_eq!(fixture.effects().await, once_each([1]));
}

#[tokio::test]
async fn duplicates_reordering_and_two_replicas_give_one_effect_each() {
    let fixture = Fixture::create().await;
    let faults = Faults { echo: true, ..Faults::default() };
    faults.lose_acks.store(10, Ordering::SeqCst);
    let faulty = Arc::new(Faulty { inner: fixture.transport(), faults });
    let recorder = Recorder::good();
    let stop = CancellationToken::new();
    let mut replicas = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let runner = fixture.bus_over(faulty.clone()).runner(recorder.registered());
        replicas.spawn(runner.run(stop.clone()));
    }
    fixture.publish(0..50).await;
    eventually("everything is handled and acked", async || {
        fixture.pass(Duration::from_secs(5));
        (fixture.count("SELECT count(*) FROM bus_deliveries").await == 0
            && fixture.count("SELECT count(*) FROM inbox_records").await == 50)
            .then_some(())
    })
    .await;
    stop.cancel();
    replicas.join_all().await;
    assert_eq!(fixture.effects().await, once_each(0..50));
    assert_eq!(fixture.count("SELECT count(*) FROM dead_letters").await, 0);
    let audited = "SELECT count(*) FROM audit_logs WHERE action = 'test.record' AND target_kind = 'event'";
    assert_eq!(fixture.count(audited).await, 50, "one audit row per effect");
}

#[tokio::test]
async fn transient_failures_are_retried_with_backoff_until_they_pass() {
    let fixture = Fixture::create().await;
    let recorder =
        Recorder::new(
            |call, _| {
                if call <= 3 { Err(ConsumeError::transient("the moon is wrong")) } else { Ok(()) }
            },
        );
    let runner = fixture.bus().runner(recorder.registered());
    fixture.publish([7]).await;
    for attempt in 1..=3_u32 {
        assert_eq!(runner.run_once().await.unwrap(), 1, "attempt {attempt}");
        assert!(fixture.effects().await.is_empty(), "a failed attempt leaves nothing");
        let longest = Duration::from_secs(1 << (attempt - 1));
        fixture.pass(longest / 2 - Duration::from_millis(1));
        assert_eq!(runner.run_once().await.unwrap(), 0, "too soon after attempt {attempt}");
        fixture.pass(longest / 2 + Duration::from_millis(1));
    }
    assert_eq!(runner.run_once().await.unwrap(), 1);
    assert_eq!(fixture.effects().await, once_each([7]));
    assert_eq!(recorder.calls(), 4);
    assert_eq!(fixture.count("SELECT count(*) FROM dead_letters").await, 0);
}

#[tokio::test]
async fn a_panic_fails_its_message_and_nothing_else() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::new(|_, envelope| {
        assert!(envelope.payload["n"] != 1, "one is too much");
        Ok(())
    });
    let stop = CancellationToken::new();
    let running = tokio::spawn(fixture.bus().runner(recorder.registered()).run(stop.clone()));
    fixture.publish([1, 2]).await;
    eventually("the other message is handled and the panic recorded", async || {
        let dead =
            "SELECT count(*) FROM dead_letters WHERE class = 'permanent' AND error LIKE '%one is too much%'";
        (fixture.count(dead).await == 1 && fixture.effects().await == once_each([2])).then_some(())
    })
    .await;
    fixture.publish([3]).await;
    eventually("the runner lives", async || (fixture.effects().await == once_each([2, 3])).then_some(()))
        .await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_handler_that_never_ends_is_stopped_and_counts_as_transient() {
    let fixture = Fixture::create().await;
    let gate = Gate::shut();
    let recorder = Recorder::gated(&gate).policy(|p| p.handler_timeout = Duration::from_millis(50));
    let runner = fixture.bus().runner(recorder.registered());
    fixture.publish([1]).await;
    assert_eq!(runner.run_once().await.unwrap(), 1);
    let waiting = "SELECT count(*) FROM bus_deliveries WHERE last_error LIKE '%took too long%'";
    assert_eq!(fixture.count(waiting).await, 1);
    assert!(fixture.effects().await.is_empty());
}

#[tokio::test]
async fn a_message_whose_attempts_never_end_becomes_a_dead_letter_without_being_run_again() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let transport = fixture.transport();
    let registration = recorder.registered();
    transport.consumer_ensure(registration.spec()).await.unwrap();
    fixture.publish([1]).await;
    // Each of these is a worker that dies with its process.
    for _ in 0..recorder.policy.max_attempts {
        assert_eq!(transport.fetch(registration.spec(), 1, Duration::from_secs(60)).await.unwrap().len(), 1);
        fixture.pass(PAST_THE_LEASE);
    }
    fixture.bus().runner(registration).run_once().await.unwrap();
    assert_eq!(recorder.calls(), 0);
    assert_eq!(fixture.count("SELECT count(*) FROM dead_letters WHERE class = 'permanent'").await, 1);
}

#[tokio::test]
async fn stopping_lets_running_handlers_finish_and_takes_nothing_new() {
    let fixture = Fixture::create().await;
    let gate = Gate::shut();
    let recorder = Recorder::gated(&gate).policy(|p| p.concurrency = 1);
    let stop = CancellationToken::new();
    let running = tokio::spawn(fixture.bus().runner(recorder.registered()).run(stop.clone()));
    fixture.publish([1, 2]).await;
    gate.wait_entered().await;
    stop.cancel();
    gate.open.add_permits(10);
    tokio::time::timeout(Duration::from_secs(10), running).await.expect("it stops").unwrap();
    assert_eq!(fixture.effects().await.len(), 1, "what ran was finished, the rest was left");
    assert_eq!(fixture.count("SELECT count(*) FROM bus_deliveries").await, 1);
}

#[tokio::test]
async fn a_stop_gives_messages_back_whose_handlers_do_not_end() {
    let fixture = Fixture::create().await;
    let gate = Gate::shut();
    let recorder = Recorder::gated(&gate);
    let stop = CancellationToken::new();
    let running = tokio::spawn(fixture.bus().runner(recorder.registered()).run(stop.clone()));
    fixture.publish([1]).await;
    gate.wait_entered().await;
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), running).await.expect("it stops").unwrap();
    assert!(fixture.effects().await.is_empty(), "rolled back");
    let runner = fixture.bus().runner(Recorder::good().registered());
    assert_eq!(runner.run_once().await.unwrap(), 1, "nobody waits for the lease");
    assert_eq!(fixture.effects().await, once_each([1]));
}

#[tokio::test]
async fn the_effect_of_a_tenants_event_is_audited_in_that_tenants_chain_under_its_correlation() {
    let fixture = Fixture::create().await;
    let org = fixture.db.ambient().id::<kernel::ids::OrgId>();
    let mut tx = fixture.db.write(fixture.permit(), "test.emit").await.unwrap();
    tx.audit_in_org(org);
    tx.emit(&Pinged { n: 1 }).unwrap();
    tx.commit(None).await.unwrap();
    fixture.bus().relay().relay_batch().await.unwrap();
    fixture.bus().runner(Recorder::good().registered()).run_once().await.unwrap();
    let chain: Vec<(String, uuid::Uuid)> =
        sqlx::query_as("SELECT action, correlation_id FROM audit_logs WHERE org_id = $1 ORDER BY seq")
            .bind(org.uuid())
            .fetch_all(&mut fixture.admin().await)
            .await
            .unwrap();
    assert_eq!(chain.len(), 2);
    assert_eq!(chain[1].0, Recorder::AUDIT_ACTION);
    assert_eq!(chain[0].1, chain[1].1, "one correlation id from cause to effect");
}

/// Takes transactions of its own, from a pool that has one connection.
struct Mender(pg::Db);

#[async_trait]
impl Reconciler for Mender {
    const NAME: &'static str = "test-mender";
    type Events = Pinged;
    const AUDIT_ACTION: &'static str = "test.mended";
    const REASON: &'static str = "a test";

    async fn reconcile(&self, _: &Pinged, envelope: &Envelope) -> Result<(), ConsumeError> {
        let permit = Permit::system("a test", Origin::internal(CorrelationId(envelope.correlation_id)));
        let mut tx = self.0.write(permit, "test.mend").await?;
        sqlx::query("INSERT INTO effects (event_id, n) SELECT $1, 1 WHERE NOT EXISTS (SELECT FROM effects)")
            .bind(envelope.event_id)
            .execute(tx.conn())
            .await?;
        tx.commit(None).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_reconciler_holds_no_connection_while_it_takes_its_own() {
    let fixture = Fixture::create().await;
    let small = pg::Db::new(fixture.test.connect.clone(), 1, 1, fixture.db.ambient().clone());
    fixture.publish([1, 2]).await;
    let bus = bus::Bus::on_postgres(small.clone(), fixture.wake.clone());
    let runner = bus.runner(bus::Registration::reconciling(Mender(small)));
    while runner.run_once().await.unwrap() > 0 {}
    assert_eq!(fixture.effects().await, once_each([1]));
    let done = "SELECT count(*) FROM audit_logs WHERE action = 'test.mended'";
    assert_eq!(fixture.count(done).await, 2, "each event is done with once");
    assert_eq!(fixture.count("SELECT count(*) FROM dead_letters").await, 0);
}
