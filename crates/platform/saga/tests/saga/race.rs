//! Workers among each other: racing, late, dying, stopping, and not knowing.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kernel::ids::SagaRunId;
use saga::{
    Engine, SagaDefinition,
    faults::{At, FaultAction, FaultPoint, Faults},
};
use testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, Record, Recorder, SPEC, once_each};

/// Answers whatever waits, and lets the clock run, until all runs are over.
async fn until_all_are_over(fixture: &Fixture) {
    eventually("every run is over", || async {
        let keys: Vec<String> = sqlx::query_scalar(
            "SELECT wake_key FROM saga_runs WHERE wake_key IS NOT NULL AND signal IS NULL",
        )
        .fetch_all(&mut fixture.admin().await)
        .await
        .unwrap();
        for key in keys {
            fixture.wake_up(&key).await;
        }
        fixture.pass(Duration::from_millis(200));
        let open = fixture.count("SELECT count(*) FROM saga_runs WHERE finished_at IS NULL").await;
        (open == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_engines_share_many_runs_and_each_step_has_its_effect_once() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let stop = CancellationToken::new();
    let engines: Vec<_> = (0..2)
        .map(|_| {
            let engine = fixture.engine(&recorder).with_concurrency(8);
            tokio::spawn(engine.run(stop.clone()))
        })
        .collect();
    let mut ids = Vec::new();
    for n in 0..40 {
        ids.push(fixture.start(&format!("thing/{n}")).await);
    }
    until_all_are_over(&fixture).await;
    for id in ids {
        assert_eq!(fixture.state(id).await, "succeeded");
        assert_eq!(fixture.effects(id).await, once_each(&["reserve", "ask", "look", "open"]));
        assert_eq!(fixture.ends(id).await, ["succeeded"]);
    }
    stop.cancel();
    for engine in engines {
        tokio::time::timeout(Duration::from_secs(20), engine).await.unwrap().unwrap();
    }
}

/// Does one thing once, at one moment.
struct Once(Mutex<Option<(At, &'static str, FaultAction)>>);

impl Once {
    fn new(at: At, step: &'static str, action: FaultAction) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some((at, step, action)))))
    }
}

impl Faults for Once {
    fn at(&self, point: FaultPoint) -> FaultAction {
        let mut planned = self.0.lock().unwrap();
        match planned.take() {
            Some((at, step, action)) if at == point.at && step == point.step => action,
            other => {
                *planned = other;
                FaultAction::Continue
            }
        }
    }
}

#[tokio::test]
async fn a_worker_that_comes_back_late_is_refused_by_the_fence() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let late =
        fixture.engine(&recorder).with_faults(Once::new(At::InStep, "reserve", FaultAction::LoseLease));
    let id = fixture.start("thing/1").await;
    late.run_once().await.unwrap();
    assert_eq!(recorder.calls(), 1);
    assert!(fixture.effects(id).await.is_empty(), "what it did is rolled back");
    fixture.settle(&fixture.engine(&recorder), id).await;
    assert_eq!(fixture.effects(id).await, once_each(&["reserve"]));
}

#[tokio::test]
async fn a_dead_workers_run_goes_on_when_its_lease_is_over_and_not_before() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let dying =
        fixture.engine(&recorder).with_faults(Once::new(At::AfterCommit, "reserve", FaultAction::Die));
    let id = fixture.start("thing/1").await;
    dying.run_once().await.unwrap();
    assert!(dying.is_dead());
    let other = fixture.engine(&recorder);
    assert_eq!(other.run_once().await.unwrap(), 0, "it is on lease");
    fixture.pass(Duration::from_secs(61));
    assert_eq!(other.run_once().await.unwrap(), 1);
    assert_eq!(fixture.effects(id).await, once_each(&["reserve"]), "the step was not run again");
    assert!(fixture.key(id).await.contains("/ask/run/1"));
}

struct AlwaysDies;

impl Faults for AlwaysDies {
    fn at(&self, point: FaultPoint) -> FaultAction {
        if point.at == At::InStep && !point.undo { FaultAction::Die } else { FaultAction::Continue }
    }
}

#[tokio::test]
async fn a_step_that_always_takes_its_worker_down_is_not_tried_for_ever() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let id = fixture.start("thing/1").await;
    let mut workers = 0;
    while fixture.state(id).await != "undone" {
        workers += 1;
        assert!(workers < 60, "it goes on and on");
        let engine = fixture.engine(&recorder).with_faults(Arc::new(AlwaysDies));
        engine.run_once().await.unwrap();
        fixture.pass(Duration::from_secs(5));
        sqlx::query("UPDATE saga_runs SET lease_until = NULL")
            .execute(&mut fixture.admin().await)
            .await
            .unwrap();
    }
    assert!(fixture.effects(id).await.is_empty());
}

#[tokio::test]
async fn an_engine_that_stops_hands_its_runs_back() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let stop = CancellationToken::new();
    let stopping = StopsAfter(stop.clone());
    let engine = fixture.engine(&recorder).with_faults(Arc::new(stopping));
    let id = fixture.start("thing/1").await;
    tokio::time::timeout(Duration::from_secs(20), engine.run(stop)).await.expect("it stops");
    assert_eq!(fixture.effects(id).await, once_each(&["reserve"]));
    assert_eq!(fixture.engine(&recorder).run_once().await.unwrap(), 1, "nobody waits for a lease");
    fixture.key(id).await;
}

#[tokio::test]
async fn an_engine_that_stops_hands_runs_back_whose_step_does_not_end() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let id = fixture.start("thing/1").await;
    // The effect of the step waits for this transaction.
    let mut admin = fixture.admin().await;
    let mut held = sqlx::Connection::begin(&mut admin).await.unwrap();
    sqlx::query("LOCK TABLE effects IN SHARE MODE").execute(&mut *held).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(fixture.engine(&recorder).run(stop.clone()));
    eventually("the step waits", || async {
        let sql = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
        (fixture.count(sql).await == 1).then_some(())
    })
    .await;
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), running).await.expect("it stops").unwrap();
    let leased = "SELECT count(*) FROM saga_runs WHERE lease_until IS NOT NULL";
    assert_eq!(fixture.count(leased).await, 0, "the lease was given back");
    held.rollback().await.unwrap();
    assert_eq!(fixture.engine(&recorder).run_once().await.unwrap(), 1, "nobody waits for a lease");
    fixture.key(id).await;
    assert_eq!(fixture.effects(id).await, once_each(&["reserve"]));
}

struct StopsAfter(CancellationToken);

impl Faults for StopsAfter {
    fn at(&self, point: FaultPoint) -> FaultAction {
        if point.at == At::InStep {
            self.0.cancel();
        }
        FaultAction::Continue
    }
}

static NEWER: Record = SagaDefinition {
    name: "record",
    version: 2,
    steps: &[],
    deadline: Duration::from_secs(600),
    on_failure: saga::OnFailure::Undo,
    audit_action: "test.record",
    ended: SPEC.ended,
};

#[tokio::test]
async fn a_definition_that_a_worker_does_not_know_is_left_alone() {
    let fixture = Fixture::create().await;
    let id: SagaRunId = fixture.try_start(&NEWER, "thing/1").await.unwrap();
    assert_eq!(fixture.engine(&Recorder::good()).run_once().await.unwrap(), 0);
    assert_eq!(fixture.state(id).await, "running");
    // A worker that knows it does: a saga without steps is done at once.
    let newer: Arc<Recorder> = Recorder::with_steps(&NEWER, |_, _, _| Ok(()));
    let engine =
        Engine::new(fixture.db.clone(), fixture.wake.clone(), vec![Recorder::good().bound(), newer.bound()]);
    assert_eq!(engine.run_once().await.unwrap(), 1);
    assert_eq!(fixture.state(id).await, "succeeded");
}
