//! How runs end: well, taken back, stuck; and that they always do.

use std::{sync::atomic::Ordering, time::Duration};

use saga::{FailureCode, StepError};

use crate::support::{FORWARD, Fixture, LocalMetrics, NEVER_RESUMED, Recorder, SPEC, once_each};

#[tokio::test]
async fn a_run_goes_through_its_steps_and_keeps_what_each_left() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::good();
    let engine = fixture.engine(&recorder);
    let id = fixture.start("thing/1").await;
    assert_eq!(fixture.settle(&engine, id).await, "running");
    assert!(fixture.wake_up(&fixture.key(id).await).await);
    assert_eq!(fixture.settle(&engine, id).await, "succeeded");
    assert_eq!(fixture.effects(id).await, once_each(&["reserve", "ask", "look", "open"]));
    assert_eq!(fixture.ends(id).await, ["succeeded"]);
    let (_, failure, outputs) = fixture.run(id).await;
    assert_eq!(failure, None);
    assert_eq!(outputs["ask"]["answer"], 42);
    assert_eq!(outputs["open"]["step"], "open");
    // One audit row for each commit of the run: reserve, ask twice, look twice, open.
    assert_eq!(fixture.count("SELECT count(*) FROM audit_logs WHERE action = 'test.record'").await, 6);
}

#[tokio::test]
async fn a_step_that_fails_for_good_is_taken_back_with_what_was_before_it() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::with_steps(&SPEC, |step, undo, _| match (step, undo) {
        ("ask", false) => Err(StepError::fail(FailureCode::Internal, "nobody there")),
        _ => Ok(()),
    });
    let engine = fixture.engine(&recorder);
    let id = fixture.start("thing/1").await;
    // Taking `ask` back waits for an answer too.
    assert_eq!(fixture.settle(&engine, id).await, "undoing");
    assert!(fixture.wake_up(&fixture.key(id).await).await);
    assert_eq!(fixture.settle(&engine, id).await, "undone");
    assert_eq!(fixture.run(id).await.1.as_deref(), Some("ask: nobody there"));
    assert!(fixture.effects(id).await.is_empty());
    assert_eq!(fixture.ends(id).await, ["undone"]);
}

#[tokio::test]
async fn what_cannot_be_taken_back_is_stuck_and_nothing_before_it_is_touched() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::with_steps(&SPEC, |step, undo, _| match (step, undo) {
        ("ask", true) => Err(StepError::retry(FailureCode::Internal, "the node is gone")),
        ("ask", false) => Err(StepError::fail(FailureCode::Internal, "nobody there")),
        _ => Ok(()),
    });
    let engine = fixture.engine(&recorder);
    let id = fixture.start("thing/1").await;
    assert_eq!(fixture.settle(&engine, id).await, "stuck");
    let failure = fixture.run(id).await.1.unwrap();
    assert!(failure.starts_with("ask: nobody there"), "the first reason stays: {failure}");
    assert!(failure.contains("ask could not be taken back: the node is gone"), "{failure}");
    assert_eq!(fixture.effects(id).await, once_each(&["reserve"]));
    assert_eq!(fixture.ends(id).await, ["stuck"]);
    let tried = fixture.count("SELECT count(*) FROM saga_steps WHERE undo AND state = 'failed'").await;
    assert_eq!(tried, 3);
}

#[tokio::test]
async fn a_forward_only_run_that_fails_is_stuck() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::with_steps(&FORWARD, |step, _, _| match step {
        "ask" => Err(StepError::retry(FailureCode::Internal, "the node is gone")),
        _ => Ok(()),
    });
    let engine = fixture.engine(&recorder);
    let id = fixture.try_start(&FORWARD, "thing/1").await.unwrap();
    assert_eq!(fixture.settle(&engine, id).await, "stuck");
    assert_eq!(fixture.effects(id).await, once_each(&["reserve"]));
    assert_eq!(fixture.ends(id).await, ["stuck"]);
}

#[tokio::test]
async fn a_failure_keeps_its_code_in_the_run_and_in_the_attempt() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::with_steps(&FORWARD, |step, _, attempt| match (step, attempt) {
        ("reserve", 1) => Err(StepError::retry(FailureCode::TimedOut, "slow")),
        ("ask", _) => Err(StepError::fail(FailureCode::Domain("of_the_domain".into()), "nobody there")),
        _ => Ok(()),
    });
    let engine = fixture.engine(&recorder);
    let id = fixture.try_start(&FORWARD, "thing/1").await.unwrap();
    assert_eq!(fixture.settle(&engine, id).await, "stuck");
    let codes: Vec<(String, Option<String>)> =
        sqlx::query_as("SELECT step, failure_code FROM saga_steps WHERE state = 'failed' ORDER BY seq")
            .fetch_all(&mut fixture.admin().await)
            .await
            .unwrap();
    let expected = [("reserve", "timed_out"), ("ask", "of_the_domain")];
    assert_eq!(codes, expected.map(|(step, code)| (step.to_owned(), Some(code.to_owned()))));
    let of_run = "SELECT count(*) FROM saga_runs WHERE failure_code = 'of_the_domain'";
    assert_eq!(fixture.count(of_run).await, 1);
}

#[tokio::test]
async fn what_is_broken_is_tried_once_and_counted() {
    let fixture = Fixture::create().await;
    let counted = LocalMetrics::start();
    let recorder = Recorder::with_steps(&FORWARD, |_, _, _| Err(kernel::Failure::bug("no meter").into()));
    let id = fixture.try_start(&FORWARD, "thing/1").await.unwrap();
    assert_eq!(fixture.settle(&fixture.engine(&recorder), id).await, "stuck");
    assert_eq!(recorder.calls(), 1);
    let failure = fixture.run(id).await.1.unwrap();
    assert!(failure.contains("no meter") && failure.contains("ends.rs:"), "with its place: {failure}");
    // A step that suspends without anything to resume it is found by its first call.
    let recorder = Recorder::with_steps(&NEVER_RESUMED, |_, _, _| Ok(()));
    let id = fixture.try_start(&NEVER_RESUMED, "thing/2").await.unwrap();
    assert_eq!(fixture.settle(&fixture.engine(&recorder), id).await, "stuck");
    assert_eq!(fixture.count("SELECT count(*) FROM saga_runs WHERE failure_code = 'bug'").await, 2);
    assert!(counted.text().contains("\nbugs_total 2\n"), "{}", counted.text());
}

#[tokio::test]
async fn a_panic_is_a_failed_attempt() {
    let fixture = Fixture::create().await;
    let recorder = Recorder::with_steps(&SPEC, |step, _, attempt| {
        assert!(step != "reserve" || attempt > 1, "a bug");
        Ok(())
    });
    let engine = fixture.engine(&recorder);
    let id = fixture.start("thing/1").await;
    assert_eq!(fixture.settle(&engine, id).await, "running");
    let detail: String = sqlx::query_scalar("SELECT detail FROM saga_steps WHERE state = 'failed'")
        .fetch_one(&mut fixture.admin().await)
        .await
        .unwrap();
    assert!(detail.contains("panicked: a bug"), "{detail}");
    assert_eq!(fixture.effects(id).await, once_each(&["reserve"]));
}

#[tokio::test]
async fn a_domain_is_told_of_the_end_however_often_that_fails_and_the_run_is_live_until_then() {
    let fixture = Fixture::create().await;
    let recorder =
        Recorder::with_steps(&FORWARD, |_, _, _| Err(StepError::fail(FailureCode::Internal, "no")));
    recorder.end_failures.store(2, Ordering::SeqCst);
    let engine = fixture.engine(&recorder);
    let told = fixture.try_start(&FORWARD, "thing/1").await.unwrap();
    assert_eq!(fixture.settle(&engine, told).await, "stuck");
    assert_eq!(fixture.ends(told).await, ["stuck"], "told at the third try");

    recorder.end_failures.store(12, Ordering::SeqCst);
    let untold = fixture.try_start(&FORWARD, "thing/2").await.unwrap();
    for _ in 0..30 {
        assert_eq!(fixture.settle(&engine, untold).await, "running");
        assert!(fixture.ends(untold).await.is_empty());
        if recorder.end_failures.load(Ordering::SeqCst) == 0 {
            break;
        }
        fixture.pass(Duration::from_secs(300));
    }
    fixture.pass(Duration::from_secs(300));
    assert_eq!(fixture.settle(&engine, untold).await, "stuck");
    assert_eq!(fixture.ends(untold).await, ["stuck"]);
}

#[tokio::test]
async fn gauges_tell_ends_that_are_retried_and_runs_that_are_stuck_or_that_nobody_takes() {
    let fixture = Fixture::create().await;
    let metrics = LocalMetrics::start();
    let recorder =
        Recorder::with_steps(&FORWARD, |_, _, _| Err(StepError::fail(FailureCode::Internal, "no")));
    recorder.end_failures.store(u32::MAX, Ordering::SeqCst);
    let engine = fixture.engine(&recorder);
    let counted = |expected: [i64; 3]| {
        let text = metrics.text();
        let names = ["saga_ends_retried", "saga_runs_stuck", "saga_runs_overdue"];
        for (name, count) in names.into_iter().zip(expected) {
            assert!(text.contains(&format!("\n{name} {count}\n")), "{name} is not {count} in\n{text}");
        }
    };
    let run = fixture.try_start(&FORWARD, "thing/1").await.unwrap();
    assert_eq!(fixture.settle(&engine, run).await, "running");
    engine.measure().await.unwrap();
    counted([1, 0, 0]);

    fixture.pass(Duration::from_secs(3600));
    engine.measure().await.unwrap();
    counted([1, 0, 1]);

    recorder.end_failures.store(0, Ordering::SeqCst);
    assert_eq!(fixture.settle(&engine, run).await, "stuck");
    engine.measure().await.unwrap();
    counted([0, 1, 0]);

    // Somebody asked for it anew.
    fixture.try_start(&FORWARD, "thing/1").await.unwrap();
    engine.measure().await.unwrap();
    counted([0, 0, 0]);
}

#[tokio::test]
async fn runs_that_ended_long_ago_are_forgotten() {
    let fixture = Fixture::create().await;
    let recorder =
        Recorder::with_steps(&FORWARD, |_, _, _| Err(StepError::fail(FailureCode::Internal, "no")));
    let engine = fixture.engine(&recorder);
    let old = fixture.try_start(&FORWARD, "thing/1").await.unwrap();
    fixture.settle(&engine, old).await;
    fixture.pass(Duration::from_secs(29 * 24 * 3600));
    assert_eq!(saga::tidy(&fixture.db).await.unwrap(), 0);
    let live = fixture.start("thing/2").await;
    fixture.pass(Duration::from_secs(2 * 24 * 3600));
    assert_eq!(saga::tidy(&fixture.db).await.unwrap(), 1);
    assert_eq!(fixture.state(live).await, "running");
    assert_eq!(fixture.count("SELECT count(*) FROM saga_steps").await, 0);
}
