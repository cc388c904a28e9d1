//! Waiting: for an answer, for a time, for a deadline; and being called off meanwhile.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use saga::{FailureCode, StepError};

use crate::support::{Fixture, Recorder, SPEC, once_each};

#[tokio::test]
async fn a_stale_key_wakes_nobody() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let engine = fixture.engine(&recorder);
    let id = fixture.start("thing/1").await;
    fixture.settle(&engine, id).await;
    let first = fixture.key(id).await;
    assert!(!fixture.wake_up("nonsense").await);
    assert!(!fixture.wake_up(&format!("{id}/ask/run/7")).await);
    // The first attempt times out; its key is stale from then on.
    fixture.pass(Duration::from_secs(31));
    engine.run_once().await.unwrap();
    fixture.pass(Duration::from_secs(3));
    engine.run_once().await.unwrap();
    let second = fixture.key(id).await;
    assert_ne!(first, second);
    assert!(!fixture.wake_up(&first).await);
    assert!(fixture.wake_up(&second).await);
    assert!(!fixture.wake_up(&second).await, "an answer is taken once");
    assert_eq!(fixture.settle(&engine, id).await, "succeeded");
    assert_eq!(fixture.effects(id).await, once_each(&["reserve", "ask", "look", "open"]));
}

#[tokio::test]
async fn a_retry_waits_for_its_delay_and_attempts_are_bounded() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::with_steps(&SPEC, |step, undo, _| match (step, undo) {
        ("reserve", false) => Err(StepError::retry(FailureCode::Internal, "busy")),
        _ => Ok(()),
    });
    let engine = fixture.engine(&recorder);
    let id = fixture.start("thing/1").await;
    for (calls, delay) in [(1, 2), (2, 4)] {
        engine.run_once().await.unwrap();
        assert_eq!(recorder.calls(), calls);
        fixture.pass(Duration::from_millis(delay * 1000 - 1));
        assert_eq!(engine.run_once().await.unwrap(), 0, "not before its time");
        fixture.pass(Duration::from_millis(1));
    }
    engine.run_once().await.unwrap();
    assert_eq!(recorder.calls(), 4, "three attempts and the undo");
    assert_eq!(fixture.state(id).await, "undone");
}

#[tokio::test]
async fn the_deadline_of_a_run_turns_it_round() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let engine = fixture.engine(&recorder);
    let id = fixture.start("thing/1").await;
    for _ in 0..4 {
        // Answers never come: attempts time out until the run does, or they are used up.
        fixture.settle(&engine, id).await;
        fixture.pass(Duration::from_secs(200));
    }
    let (state, failure, _) = fixture.run(id).await;
    assert_eq!(state, "undoing");
    assert!(failure.unwrap().contains("longer than it may"));
    assert!(fixture.wake_up(&fixture.key(id).await).await);
    assert_eq!(fixture.settle(&engine, id).await, "undone");
    assert!(fixture.effects(id).await.is_empty());
}

#[tokio::test]
async fn a_cancelled_run_is_taken_back_while_it_waits() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let engine = fixture.engine(&recorder);
    let id = fixture.start("thing/1").await;
    fixture.settle(&engine, id).await;
    let forward = fixture.key(id).await;
    assert!(fixture.cancel("thing/1").await);
    engine.run_once().await.unwrap();
    assert!(!fixture.wake_up(&forward).await, "the answer comes too late");
    assert!(!fixture.cancel("thing/1").await, "it is being taken back already");
    assert!(fixture.wake_up(&fixture.key(id).await).await);
    assert_eq!(fixture.settle(&engine, id).await, "undone");
    assert_eq!(fixture.run(id).await.1.as_deref(), Some("cancelled: not wanted"));
    assert!(fixture.effects(id).await.is_empty());
}

#[tokio::test]
async fn a_run_that_is_cancelled_before_anything_happened_ends_without_a_call() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let id = fixture.start("thing/1").await;
    assert!(fixture.cancel("thing/1").await);
    assert_eq!(fixture.settle(&fixture.engine(&recorder), id).await, "undone");
    assert_eq!(recorder.calls(), 0);
    assert_eq!(fixture.ends(id).await, ["undone"]);
    assert!(!fixture.cancel("thing/1").await, "there is nothing left to cancel");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_while_its_timeout_is_handled_is_not_lost() {
    let fixture = Arc::new(Fixture::create().await);
    let late: Arc<Mutex<Option<String>>> = Arc::default();
    let recorder = {
        let (late, fixture) = (late.clone(), Arc::downgrade(&fixture));
        Recorder::with_steps(&SPEC, move |_, _, _| {
            if let Some(key) = late.lock().unwrap().take() {
                let fixture = fixture.upgrade().unwrap();
                let wake = async move { assert!(fixture.wake_up(&key).await) };
                tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(wake));
            }
            Ok(())
        })
    };
    let engine = fixture.engine(&recorder);
    let id = fixture.start("thing/1").await;
    fixture.settle(&engine, id).await;
    *late.lock().unwrap() = Some(fixture.key(id).await);
    fixture.pass(Duration::from_secs(31));
    assert_eq!(fixture.settle(&engine, id).await, "succeeded");
    let failed = fixture.count("SELECT count(*) FROM saga_steps WHERE state = 'failed'").await;
    assert_eq!(failed, 0, "the timeout was not recorded, the answer was taken");
}
