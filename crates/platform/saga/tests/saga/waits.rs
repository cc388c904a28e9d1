//! Waiting: for an answer, for a time, for a deadline; and being called off meanwhile.

use std::time::Duration;

use saga::StepError;

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
    let recorder = Recorder::of(&SPEC, |step, undo, _| match (step, undo) {
        ("reserve", false) => Err(StepError::retry("busy")),
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
