use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bus::{ConsumeError, Transport as _, outbox};
use kernel::PageQuery;
use pg::Roles;
use sqlx::Executor as _;
use testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::support::{Faults, Faulty, Fixture, Recorder, once_each};

const DAY: Duration = Duration::from_secs(86_400);

fn faulty(fixture: &Fixture) -> Arc<Faulty> {
    Arc::new(Faulty { inner: fixture.transport(), faults: Faults::default() })
}

async fn outbox(fixture: &Fixture) -> outbox::Outbox {
    let mut tx = fixture.db.read(&fixture.permit()).await.unwrap();
    outbox::show(tx.conn(), fixture.db.ambient().now(), None, &PageQuery::default()).await.unwrap()
}

#[tokio::test]
async fn two_relays_at_once_publish_each_event_once() {
    let fixture = Fixture::create().await;
    for hundred in 0..10 {
        fixture.emit(hundred * 100..(hundred + 1) * 100).await;
    }
    let transport = faulty(&fixture);
    let drain = async || {
        let relay = fixture.bus_over(transport.clone()).relay();
        while relay.relay_batch().await.unwrap() > 0 {}
    };
    tokio::join!(drain(), drain(), drain());
    let published = transport.faults.published.lock().unwrap().clone();
    assert_eq!(published.len(), 1000);
    assert!(published.values().all(|times| *times == 1), "an event was published twice");
    assert_eq!(fixture.count("SELECT count(*) FROM outbox_events WHERE published_at IS NULL").await, 0);
    assert_eq!(fixture.count("SELECT count(*) FROM bus_messages").await, 1000);
}

#[tokio::test]
async fn a_rolled_back_change_publishes_nothing() {
    let fixture = Fixture::create().await;
    let mut tx = fixture.db.write(fixture.permit(), "test.emit").await.unwrap();
    tx.emit(&crate::support::Pinged { n: 1 }).unwrap();
    tx.roll_back().await;
    assert_eq!(fixture.bus().relay().relay_batch().await.unwrap(), 0);
    assert_eq!(fixture.count("SELECT count(*) FROM bus_messages").await, 0);
}

#[tokio::test]
async fn an_unreachable_transport_is_shown_and_tried_again_with_backoff() {
    let fixture = Fixture::create().await;
    let transport = faulty(&fixture);
    transport.faults.refuse_publish.store(1, Ordering::SeqCst);
    let relay = fixture.bus_over(transport).relay();
    fixture.emit([1]).await;
    let before = outbox(&fixture).await;
    assert_eq!((before.pending, before.failing, before.items.len()), (1, 0, 1));

    relay.relay_batch().await.unwrap_err();
    fixture.pass(Duration::from_millis(400));
    assert_eq!(relay.relay_batch().await.unwrap(), 0, "it waits");
    let failing = outbox(&fixture).await;
    assert_eq!((failing.pending, failing.failing, failing.items[0].attempts), (1, 1, 1));
    assert!(failing.items[0].last_error.as_deref().unwrap().contains("the line is cut"));

    fixture.pass(Duration::from_secs(10));
    assert_eq!(outbox(&fixture).await.oldest_age_seconds, 10);
    assert_eq!(relay.relay_batch().await.unwrap(), 1);
    assert_eq!(outbox(&fixture).await.pending, 0);
}

#[tokio::test]
async fn an_event_whose_publication_was_not_confirmed_is_published_again_and_delivered_once() {
    let fixture = Fixture::create().await;
    let transport = faulty(&fixture);
    transport.faults.lose_publish_answers.store(1, Ordering::SeqCst);
    let relay = fixture.bus_over(transport.clone()).relay();
    let runner = fixture.bus().runner(Recorder::good().registered());
    runner.run_once().await.unwrap();
    fixture.emit([1]).await;
    relay.relay_batch().await.unwrap_err();
    fixture.pass(Duration::from_secs(2));
    assert_eq!(relay.relay_batch().await.unwrap(), 1);
    assert_eq!(transport.faults.published.lock().unwrap().values().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(runner.run_once().await.unwrap(), 1);
    assert_eq!(runner.run_once().await.unwrap(), 0);
    assert_eq!(fixture.effects().await, once_each([1]));
}

#[tokio::test]
async fn the_rows_of_a_relay_that_died_are_published_by_another_after_the_lease() {
    let fixture = Fixture::create().await;
    fixture.emit([1]).await;
    // What a relay leaves behind when it dies between claim and publication.
    fixture
        .test
        .conn(Roles::Admin)
        .await
        .execute("UPDATE outbox_events SET attempts = 1, next_attempt_at = '2030-01-01T00:01:00Z'")
        .await
        .unwrap();
    let relay = fixture.bus().relay();
    assert_eq!(relay.relay_batch().await.unwrap(), 0);
    fixture.pass(Duration::from_secs(61));
    assert_eq!(relay.relay_batch().await.unwrap(), 1);
}

#[tokio::test]
async fn one_refused_event_does_not_hold_up_the_others() {
    let fixture = Fixture::create().await;
    let transport = faulty(&fixture);
    *transport.faults.rejected.lock().unwrap() = Some(3);
    fixture.emit(0..6).await;
    fixture.bus_over(transport).relay().relay_batch().await.unwrap_err();
    assert_eq!(fixture.count("SELECT count(*) FROM bus_messages").await, 5);
    let left = outbox(&fixture).await;
    assert_eq!((left.pending, left.failing), (1, 1));
}

#[tokio::test]
async fn relay_and_runner_work_by_notification_and_stop_when_told() {
    let fixture = Fixture::create().await;
    let stop = CancellationToken::new();
    let relay = tokio::spawn(fixture.bus().relay().run(stop.clone()));
    let runner = tokio::spawn(fixture.bus().runner(Recorder::good().registered()).run(stop.clone()));
    for n in 0..5 {
        fixture.emit([n]).await;
    }
    eventually("every event has its effect", async || {
        (fixture.effects().await == once_each(0..5)).then_some(())
    })
    .await;
    stop.cancel();
    for task in [relay, runner] {
        tokio::time::timeout(Duration::from_secs(10), task).await.expect("it stops").unwrap();
    }
}

#[tokio::test]
async fn a_stop_gives_events_back_whose_publication_does_not_end() {
    let fixture = Fixture::create().await;
    let faults = Faults { hang_publish: AtomicU32::new(1), ..Faults::default() };
    let transport = Arc::new(Faulty { inner: fixture.transport(), faults });
    fixture.emit([1]).await;
    let stop = CancellationToken::new();
    let relay = tokio::spawn(fixture.bus_over(transport.clone()).relay().run(stop.clone()));
    eventually("the relay publishes", async || {
        (transport.faults.hang_publish.load(Ordering::SeqCst) == 0).then_some(())
    })
    .await;
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(10), relay).await.expect("it stops").unwrap();
    assert_eq!(fixture.bus().relay().relay_batch().await.unwrap(), 1, "nobody waits for the lease");
    assert_eq!(fixture.count("SELECT count(*) FROM bus_messages").await, 1);
}

#[tokio::test]
async fn gauges_tell_the_backlog_and_the_dead() {
    let fixture = Fixture::create().await;
    let metrics = telemetry::metrics();
    fixture.publish([1]).await;
    let bad = Recorder::new(|_, _| Err(ConsumeError::permanent("poison")));
    fixture.bus().runner(bad.registered()).run_once().await.unwrap();
    fixture.emit([2]).await;
    fixture.pass(Duration::from_secs(30));
    fixture.bus().relay().measure().await.unwrap();
    let text = metrics.render();
    for line in ["outbox_pending", "outbox_oldest_age_seconds", "dead_letters{", "bus_messages_total{"] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[tokio::test]
async fn what_nobody_needs_any_more_is_deleted_and_nothing_else() {
    let fixture = Fixture::create().await;
    let relay = fixture.bus().relay();
    let runner = fixture.bus().runner(Recorder::good().registered());
    fixture.publish([1]).await;
    runner.run_once().await.unwrap();
    // The same message on the stream that keeps for longer.
    fixture
        .admin()
        .await
        .execute(
            "INSERT INTO bus_messages (event_id, stream, event_type, version, occurred_at, correlation_id, payload, published_at)
             SELECT gen_random_uuid(), 'PAYMENTS', event_type, version, occurred_at, correlation_id, payload, published_at
             FROM bus_messages",
        )
        .await
        .unwrap();
    let kept = async || -> Vec<i64> {
        let mut counts = Vec::new();
        for query in [
            "SELECT count(*) FROM outbox_events",
            "SELECT count(*) FROM bus_messages WHERE stream = 'STORAGE'",
            "SELECT count(*) FROM bus_messages WHERE stream = 'PAYMENTS'",
            "SELECT count(*) FROM inbox_records",
        ] {
            counts.push(fixture.count(query).await);
        }
        counts
    };
    for (days, expected) in
        [(0, [1, 1, 1, 1]), (2, [0, 1, 1, 1]), (6, [0, 0, 1, 1]), (23, [0, 0, 0, 1]), (30, [0, 0, 0, 0])]
    {
        fixture.pass(DAY * days);
        relay.tidy().await.unwrap();
        assert_eq!(kept().await, expected, "after {days} more days");
    }
}

#[tokio::test]
async fn an_old_message_stays_while_a_living_consumer_has_not_handled_it() {
    let fixture = Fixture::create().await;
    let transport = fixture.transport();
    let registration = Recorder::good().registered();
    transport.consumer_ensure(registration.spec()).await.unwrap();
    fixture.publish([1]).await;
    fixture.pass(DAY * 20);
    transport.consumer_ensure(registration.spec()).await.unwrap();
    fixture.pass(DAY * 20);
    assert_eq!(transport.retain().await.unwrap(), 0);
    fixture.bus().runner(registration).run_once().await.unwrap();
    assert_eq!(fixture.effects().await, once_each([1]));
    assert_eq!(transport.retain().await.unwrap(), 1);

    fixture.publish([2]).await;
    fixture.pass(DAY * 31);
    assert_eq!(transport.retain().await.unwrap(), 1, "a consumer that nobody runs is forgotten");
    assert_eq!(fixture.count("SELECT count(*) FROM bus_consumers").await, 0);
}

#[tokio::test]
async fn requests_cannot_reach_the_tables_of_the_bus() {
    let fixture = Fixture::create().await;
    let mut app = fixture.test.conn(Roles::App).await;
    let tables = BTreeSet::from([
        "bus_messages",
        "bus_consumers",
        "bus_deliveries",
        "inbox_records",
        "dead_letters",
        "outbox_events",
    ]);
    for table in tables {
        let query = format!("SELECT FROM {table}");
        let refused = app.execute(sqlx::AssertSqlSafe(query)).await.unwrap_err();
        assert!(refused.to_string().contains("permission denied"), "{table}: {refused}");
    }
}
