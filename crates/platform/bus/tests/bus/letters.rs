use std::{sync::Arc, time::Duration};

use bus::{
    ConsumeError,
    dead_letter::{self, DeadLetter, DeadLetterLifecycle, Filter, State},
};
use kernel::{Code, Failure, PageQuery, Problem, ids::DeadLetterId, text::Reason};
use sqlx::Executor as _;
use tokio_util::sync::CancellationToken;

use crate::support::{Fixture, Gate, Recorder, once_each};

async fn letters(fixture: &Fixture, filter: Filter) -> Vec<DeadLetter> {
    let mut tx = fixture.db.read(&fixture.permit()).await.unwrap();
    dead_letter::list(tx.conn(), &filter, &PageQuery::default()).await.unwrap().items
}

async fn the_letter(fixture: &Fixture) -> DeadLetter {
    let mut found = letters(fixture, Filter::default()).await;
    assert_eq!(found.len(), 1);
    found.remove(0)
}

async fn requeue(fixture: &Fixture, id: DeadLetterId, if_match: Option<i64>) -> Result<DeadLetter, Failure> {
    let mut tx = fixture.db.write(fixture.permit(), "dead_letter.requeue").await.unwrap();
    let letter = dead_letter::requeue(&mut tx, id, if_match).await?;
    tx.commit(None).await.unwrap();
    Ok(letter)
}

async fn discard(fixture: &Fixture, id: DeadLetterId) -> Result<DeadLetter, Failure> {
    let mut tx = fixture.db.write(fixture.permit(), "dead_letter.discard").await.unwrap();
    let letter = dead_letter::discard(&mut tx, id, None, &Reason::parse("not worth it").unwrap()).await?;
    tx.commit(None).await.unwrap();
    Ok(letter)
}

fn problem<T>(outcome: Result<T, Failure>) -> Problem {
    match outcome {
        Err(Failure::Problem(problem)) => problem,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it should be refused"),
    }
}

fn poisoned() -> Recorder {
    Recorder::new(|_, _| Err(ConsumeError::permanent("poison")))
}

#[tokio::test]
async fn poison_is_dead_lettered_visible_requeued_and_handled() {
    let fixture = Fixture::create().await;
    fixture.publish([1, 2]).await;
    let bad = Recorder::new(|_, envelope| match envelope.payload["n"].as_u64() {
        Some(1) => Err(ConsumeError::permanent("poison")),
        _ => Ok(()),
    });
    fixture.bus().runner(bad.registered()).run_once().await.unwrap();
    assert_eq!(fixture.effects().await, once_each([2]), "poison does not hold up the rest");

    let letter = the_letter(&fixture).await;
    assert_eq!((letter.state, letter.attempts, letter.next_attempt_at), (State::Dead, 1, None));
    assert!(letter.error.contains("poison"), "{}", letter.error);
    let mut tx = fixture.db.read(&fixture.permit()).await.unwrap();
    let shown = dead_letter::get(tx.conn(), letter.id).await.unwrap();
    assert_eq!(shown.envelope.payload["n"], 1);
    drop(tx);

    let good = fixture.bus().runner(Recorder::good().registered());
    assert_eq!(good.run_once().await.unwrap(), 0, "it waits for a person");
    assert_eq!(requeue(&fixture, letter.id, Some(letter.version)).await.unwrap().state, State::Requeued);
    assert_eq!(good.run_once().await.unwrap(), 1);
    assert_eq!(fixture.effects().await, once_each([1, 2]));
    let resolved = the_letter(&fixture).await;
    assert_eq!((resolved.state, resolved.attempts), (State::Resolved, 2));
    let audited =
        "SELECT count(*) FROM audit_logs WHERE action = 'dead_letter.requeue' AND target_kind = 'dead_letter'
        AND before_digest IS NOT NULL AND after_digest IS NOT NULL";
    assert_eq!(fixture.count(audited).await, 1);

    assert_eq!(problem(requeue(&fixture, letter.id, None).await).code, Code::InvalidTransition);
    assert_eq!(problem(discard(&fixture, letter.id).await).code, Code::InvalidTransition);
}

#[tokio::test]
async fn a_stop_gives_a_requeued_letter_back_whose_handler_does_not_end() {
    let fixture = Fixture::create().await;
    fixture.publish([1]).await;
    fixture.bus().runner(poisoned().registered()).run_once().await.unwrap();
    requeue(&fixture, the_letter(&fixture).await.id, None).await.unwrap();
    let gate = Gate::shut();
    let stop = CancellationToken::new();
    let gated = Recorder::gated(&gate);
    let running = tokio::spawn(fixture.bus().runner(gated.registered()).run(stop.clone()));
    gate.wait_entered().await;
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), running).await.expect("it stops").unwrap();
    let runner = fixture.bus().runner(Recorder::good().registered());
    assert_eq!(runner.run_once().await.unwrap(), 1, "nobody waits for the lease");
    assert_eq!(fixture.effects().await, once_each([1]));
    assert_eq!(the_letter(&fixture).await.state, State::Resolved);
}

#[tokio::test]
async fn a_requeued_letter_that_fails_is_dead_again_with_the_new_cause() {
    let fixture = Fixture::create().await;
    fixture.publish([1]).await;
    fixture.bus().runner(poisoned().registered()).run_once().await.unwrap();
    let letter = the_letter(&fixture).await;
    requeue(&fixture, letter.id, None).await.unwrap();
    let other = Recorder::new(|_, _| Err(ConsumeError::permanent("another poison")));
    fixture.bus().runner(other.registered()).run_once().await.unwrap();
    let again = the_letter(&fixture).await;
    assert_eq!((again.id, again.state, again.attempts), (letter.id, State::Dead, 2));
    assert!(again.error.contains("another poison"));
    assert!(again.version > letter.version);
}

#[tokio::test]
async fn a_transient_cause_is_retried_by_itself_slowly_and_not_for_ever() {
    let fixture = Fixture::create().await;
    fixture.publish([1]).await;
    let down = Recorder::new(|_, _| Err(ConsumeError::transient("down")))
        .policy(|p| (p.max_attempts, p.slow_retries) = (1, 2));
    let runner = fixture.bus().runner(down.registered());
    assert_eq!(runner.run_once().await.unwrap(), 1);
    for retry in 1..=2 {
        let letter = the_letter(&fixture).await;
        assert_eq!(letter.state, State::Dead);
        assert!(letter.next_attempt_at.is_some(), "retry {retry} is planned");
        assert_eq!(runner.run_once().await.unwrap(), 0, "not yet");
        fixture.pass(Duration::from_secs(3600));
        assert_eq!(runner.run_once().await.unwrap(), 1, "retry {retry}");
    }
    assert_eq!(the_letter(&fixture).await.next_attempt_at, None, "it had its retries");
    fixture.pass(Duration::from_secs(7 * 86_400));
    assert_eq!(runner.run_once().await.unwrap(), 0);
    assert_eq!(down.calls(), 3);

    requeue(&fixture, the_letter(&fixture).await.id, None).await.unwrap();
    fixture.bus().runner(Recorder::good().registered()).run_once().await.unwrap();
    assert_eq!(fixture.effects().await, once_each([1]));
}

#[tokio::test]
async fn a_transient_letter_whose_cause_passes_resolves_itself() {
    let fixture = Fixture::create().await;
    fixture.publish([1]).await;
    let recorder =
        Recorder::new(|call, _| if call <= 2 { Err(ConsumeError::transient("down")) } else { Ok(()) })
            .policy(|p| p.max_attempts = 2);
    let runner = fixture.bus().runner(recorder.registered());
    for _ in 0..3 {
        runner.run_once().await.unwrap();
        fixture.pass(Duration::from_secs(3600));
    }
    assert_eq!(the_letter(&fixture).await.state, State::Resolved);
    assert_eq!(fixture.effects().await, once_each([1]));
}

#[tokio::test]
async fn a_discarded_letter_never_has_an_effect_even_when_a_copy_comes_late() {
    let fixture = Fixture::create().await;
    fixture.publish([1]).await;
    fixture.bus().runner(poisoned().registered()).run_once().await.unwrap();
    let letter = the_letter(&fixture).await;
    let discarded = discard(&fixture, letter.id).await.unwrap();
    assert_eq!(discarded.discard_reason.as_deref(), Some("not worth it"));
    // The consumer forgets and learns again: the stream's copy is delivered once more.
    fixture.admin().await.execute("DELETE FROM bus_consumers").await.unwrap();
    let recorder = Recorder::good();
    assert_eq!(fixture.bus().runner(recorder.registered()).run_once().await.unwrap(), 1);
    assert_eq!(recorder.calls(), 0);
    assert!(fixture.effects().await.is_empty());
}

#[tokio::test]
async fn discarding_a_letter_while_it_is_handled_waits_and_comes_too_late() {
    let fixture = Fixture::create().await;
    fixture.publish([1]).await;
    fixture.bus().runner(poisoned().registered()).run_once().await.unwrap();
    let letter = the_letter(&fixture).await;
    requeue(&fixture, letter.id, None).await.unwrap();
    let gate = Gate::shut();
    let runner = fixture.bus().runner(Recorder::gated(&gate).registered());
    let running = tokio::spawn(async move { runner.run_once().await });
    gate.wait_entered().await;
    let fixture = Arc::new(fixture);
    let discarding = tokio::spawn({
        let fixture = fixture.clone();
        async move { discard(&fixture, letter.id).await.map(|l| l.state) }
    });
    testkit::eventually("the discard waits for the handler", async || {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        (fixture.count(waits).await > 0).then_some(())
    })
    .await;
    gate.open.add_permits(1);
    running.await.unwrap().unwrap();
    assert_eq!(problem(discarding.await.unwrap()).code, Code::Conflict);
    assert_eq!(fixture.effects().await, once_each([1]));
    assert_eq!(the_letter(&fixture).await.state, State::Resolved);
}

#[tokio::test]
async fn a_stale_version_and_an_unknown_letter_are_told_apart() {
    let fixture = Fixture::create().await;
    fixture.publish([1]).await;
    fixture.bus().runner(poisoned().registered()).run_once().await.unwrap();
    let letter = the_letter(&fixture).await;
    let stale = problem(requeue(&fixture, letter.id, Some(letter.version + 1)).await);
    assert_eq!((stale.code, &stale.details["current_version"]), (Code::Conflict, &letter.version.into()));
    let unknown = problem(requeue(&fixture, fixture.db.ambient().id(), None).await);
    assert_eq!(unknown.code, Code::NotFound);
}

#[tokio::test]
async fn lists_filter_by_consumer_and_state() {
    let fixture = Fixture::create().await;
    fixture.publish([1, 2]).await;
    fixture.bus().runner(poisoned().registered()).run_once().await.unwrap();
    let all = letters(&fixture, Filter::default()).await;
    assert_eq!(all.len(), 2);
    requeue(&fixture, all[0].id, None).await.unwrap();
    let count = async |consumer: Option<&str>, state| {
        letters(&fixture, Filter { consumer: consumer.map(str::to_owned), state }).await.len()
    };
    assert_eq!(count(None, Some(State::Dead)).await, 1);
    assert_eq!(count(Some("test-recorder"), Some(State::Requeued)).await, 1);
    assert_eq!(count(Some("nobody"), None).await, 0);
}

#[tokio::test]
async fn the_database_holds_the_same_lifecycle_and_refuses_anything_else() {
    let fixture = Fixture::create().await;
    let mut admin = fixture.admin().await;
    fixture.test.assert_lifecycle::<DeadLetterLifecycle>().await;
    fixture.publish([1]).await;
    fixture.bus().runner(poisoned().registered()).run_once().await.unwrap();
    let refused = admin.execute("UPDATE dead_letters SET state = 'resolved'").await.unwrap_err();
    assert!(refused.to_string().contains("cannot go from dead to resolved"), "{refused}");
}
