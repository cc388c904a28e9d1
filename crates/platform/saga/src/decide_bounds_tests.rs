//! The bounds of [`decide`](super::decide) and [`settle`](super::settle), at the value and beside it: deadlines, delays
//! and numbers of attempts.

use proptest::prelude::*;

use super::tests::{error, fresh, spec};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Of two steps, each with an undo.
fn two_steps(attempts: u32, first_delay_ms: u64) -> &'static SagaSpec {
    spec(vec![(true, attempts, first_delay_ms); 2], OnFailure::Undo)
}

fn undoing(spec: &SagaSpec, attempt: u32) -> Progress {
    Progress { undoing: true, begun: true, attempt, ..fresh(spec) }
}

fn settled(spec: &SagaSpec, at: &Progress, outcome: &Outcome) -> Progress {
    match settle(spec, at, outcome) {
        Settled::On(on) => on,
        Settled::End(end) => panic!("the run ended: {end:?}"),
    }
}

fn transient() -> Outcome {
    Outcome::Failed(error("no", false))
}

proptest! {
    #[test]
    fn the_delay_doubles_with_each_attempt_up_to_five_minutes(attempt in 1u32..40, first_delay_ms in 0u64..5_000) {
        let spec = two_steps(40, first_delay_ms);
        let at = Progress { attempt, ..fresh(spec) };
        let on = settled(spec, &at, &transient());
        let doubled = u128::from(first_delay_ms) << (attempt - 1);
        let delay = Duration::from_millis(u64::try_from(doubled.min(300_000)).unwrap());
        prop_assert_eq!((on.attempt, on.due_at, on.failure), (attempt + 1, later(at.now, delay), None));
    }
}

#[test]
fn the_last_attempt_is_followed_by_no_other() {
    let spec = two_steps(3, 100);
    let at = Progress { attempt: 3, attempt_deadline: Some(later(fresh(spec).now, SECOND)), ..fresh(spec) };
    let on = settled(spec, &at, &transient());
    let failure = RunFailure { code: FailureCode::Internal, text: "a: no".to_owned() };
    assert_eq!((on.attempt, on.due_at, on.attempt_deadline), (3, at.now, None));
    assert_eq!(on.failure, Some(failure.clone()));
    assert_eq!(decide(spec, &on), Next::StartUndo { step: 0, failure });
    // A step that names no attempts has one.
    let once = settled(two_steps(0, 100), &fresh(spec), &transient());
    assert!(once.failure.is_some());
}

#[test]
fn an_undo_has_three_attempts_at_least_and_waits_between_them() {
    let spec = two_steps(1, 0);
    for (attempt, delay_ms) in [(1, 200), (2, 400)] {
        let on = settled(spec, &undoing(spec, attempt), &transient());
        assert_eq!((on.attempt, on.due_at), (attempt + 1, later(on.now, Duration::from_millis(delay_ms))));
    }
    assert_eq!(decide(spec, &undoing(spec, 3)), Next::Undo { step: 0, attempt: 3 });
    let on = settled(spec, &undoing(spec, 3), &transient());
    assert_eq!(on.attempt, 4);
    assert!(matches!(decide(spec, &on), Next::Finish { end: RunEnd::Stuck, .. }));
    // More, when the step says so.
    let spec = two_steps(5, 0);
    assert_eq!(decide(spec, &undoing(spec, 5)), Next::Undo { step: 0, attempt: 5 });
    let for_good = settled(spec, &undoing(spec, 1), &Outcome::Failed(error("no", true)));
    assert_eq!(for_good.attempt, 6);
    assert!(matches!(decide(spec, &for_good), Next::Finish { end: RunEnd::Stuck, .. }));
}

#[test]
fn what_cannot_be_taken_back_is_added_to_the_first_reason() {
    let spec = two_steps(1, 0);
    let failed = Outcome::Failed(error("busy", true));
    let first = RunFailure { code: FailureCode::Cancelled, text: "cancelled: no".to_owned() };
    let at = Progress { failure: Some(first), ..undoing(spec, 1) };
    let failure = settled(spec, &at, &failed).failure.unwrap();
    assert_eq!(failure.text, "cancelled: no; a could not be taken back: busy");
    assert_eq!(failure.code, FailureCode::Cancelled);
    let alone = settled(spec, &undoing(spec, 1), &failed).failure.unwrap();
    assert_eq!((alone.code, alone.text.as_str()), (FailureCode::Internal, "a could not be taken back: busy"));
}

#[test]
fn a_suspended_call_is_made_once_more_when_its_deadline_is_reached() {
    let spec = two_steps(1, 0);
    let now = fresh(spec).now;
    for undoing in [false, true] {
        let called = |timed_out| match undoing {
            false => Next::Resume { step: 0, attempt: 1, timed_out },
            true => Next::ResumeUndo { step: 0, attempt: 1, timed_out },
        };
        let at = |waiting, deadline| Progress {
            undoing,
            waiting,
            attempt_deadline: Some(deadline),
            ..fresh(spec)
        };
        let before = later(now, MILLISECOND);
        assert_eq!(decide(spec, &at(Waiting::Suspended, before)), Next::Sleep { until: before });
        assert_eq!(decide(spec, &at(Waiting::Suspended, now)), called(true));
        assert_eq!(decide(spec, &at(Waiting::Woken, now)), called(false));
        assert_eq!(decide(spec, &at(Waiting::Woken, before)), called(false));
    }
}

#[test]
fn a_call_waits_until_it_is_due() {
    let spec = two_steps(1, 0);
    let due_at = later(fresh(spec).now, MILLISECOND);
    let early = Progress { due_at, ..fresh(spec) };
    assert_eq!(decide(spec, &early), Next::Sleep { until: due_at });
    assert_eq!(decide(spec, &Progress { undoing: true, ..early }), Next::Sleep { until: due_at });
    assert_eq!(decide(spec, &fresh(spec)), Next::Run { step: 0, attempt: 1 });
    assert_eq!(decide(spec, &undoing(spec, 2)), Next::Undo { step: 0, attempt: 2 });
}

#[test]
fn the_deadline_of_an_attempt_is_set_by_its_first_call_and_ends_it() {
    let spec = two_steps(1, 0);
    let at = fresh(spec);
    let deadline = later(at.now, 10 * SECOND);
    for outcome in [Outcome::Suspended, Outcome::Again { after: 2 * SECOND }] {
        let on = settled(spec, &at, &outcome);
        assert_eq!(on.attempt_deadline, Some(deadline));
        assert_eq!((on.begun, on.attempt, on.failure.as_ref()), (true, 1, None));
        let once_more = settled(spec, &Progress { now: later(at.now, 9 * SECOND), ..on.clone() }, &outcome);
        assert_eq!(once_more.attempt_deadline, Some(deadline), "a later call does not put it off");
        let over = settled(spec, &Progress { now: deadline, ..on }, &outcome);
        let failure = over.failure.unwrap();
        assert_eq!(
            (failure.code, failure.text.as_str()),
            (FailureCode::TimedOut, "a: a did not end in time")
        );
    }
    let suspended = settled(spec, &at, &Outcome::Suspended);
    assert_eq!((suspended.waiting, suspended.due_at), (Waiting::Suspended, deadline));
}

#[test]
fn asking_for_another_call_is_bounded_below_and_by_both_deadlines() {
    let spec = two_steps(1, 0);
    let due = |at: &Progress, after| {
        let on = settled(spec, at, &Outcome::Again { after });
        assert_eq!(on.waiting, Waiting::No);
        u64::try_from((on.due_at - on.now).num_milliseconds()).unwrap()
    };
    let at = fresh(spec);
    let nearly_over = Progress { deadline: later(at.now, 3 * SECOND), ..at.clone() };
    assert_eq!(due(&at, Duration::ZERO), 20);
    assert_eq!(due(&at, 2 * SECOND), 2_000);
    assert_eq!(due(&at, 60 * SECOND), 10_000, "the attempt's deadline");
    assert_eq!(due(&nearly_over, 60 * SECOND), 3_000, "the run's deadline");
    assert_eq!(
        due(&Progress { undoing: true, ..nearly_over }, 60 * SECOND),
        10_000,
        "an undo has no run deadline"
    );
}

#[test]
fn each_step_leads_to_the_next_one_and_back() {
    let spec = spec(vec![(true, 1, 0), (false, 1, 0), (true, 1, 0)], OnFailure::Undo);
    let at = Progress {
        step: 1,
        attempt: 2,
        attempt_deadline: Some(later(fresh(spec).now, SECOND)),
        ..fresh(spec)
    };
    let on = settled(spec, &at, &Outcome::Done);
    assert_eq!((on.step, on.attempt, on.begun, on.attempt_deadline), (2, 1, false, None));
    let last = Progress { step: 2, ..at };
    assert_eq!(settle(spec, &last, &Outcome::Done), Settled::End(RunEnd::Succeeded));
    let back = settled(spec, &Progress { undoing: true, ..last }, &Outcome::Done);
    assert_eq!(
        (back.step, back.begun, back.undoing),
        (0, true, true),
        "a step without an undo is passed over"
    );
    assert_eq!(settle(spec, &back, &Outcome::Done), Settled::End(RunEnd::Undone));
    let beyond = Progress { step: 3, ..back };
    assert_eq!(settle(spec, &beyond, &Outcome::Done), Settled::End(RunEnd::Stuck));
}

#[test]
fn a_run_stops_at_its_deadline_or_when_it_is_cancelled_and_the_first_reason_counts() {
    let spec = two_steps(1, 0);
    let at = fresh(spec);
    let soon = Progress { deadline: later(at.now, MILLISECOND), begun: true, ..at.clone() };
    assert_eq!(decide(spec, &soon), Next::Run { step: 0, attempt: 1 });
    let code = |at: &Progress| match decide(spec, at) {
        Next::StartUndo { step: 0, failure } => failure.code,
        other => panic!("{other:?}"),
    };
    let over = Progress { deadline: at.now, begun: true, ..at.clone() };
    assert_eq!(code(&over), FailureCode::DeadlineExceeded);
    let cancelled = Progress { cancel: Some("no".to_owned()), ..over };
    assert_eq!(code(&cancelled), FailureCode::Cancelled);
    let failed = RunFailure { code: FailureCode::Refused, text: String::new() };
    assert_eq!(code(&Progress { failure: Some(failed), ..cancelled.clone() }), FailureCode::Refused);
    // On the way back neither counts any more.
    assert_eq!(decide(spec, &Progress { undoing: true, ..cancelled }), Next::Undo { step: 0, attempt: 1 });
}

#[test]
fn a_saga_without_steps_is_over() {
    let spec = spec(Vec::new(), OnFailure::Undo);
    let at = fresh(spec);
    assert_eq!(decide(spec, &at), Next::Finish { end: RunEnd::Succeeded, failure: None });
    let back = Progress { undoing: true, ..at };
    assert_eq!(decide(spec, &back), Next::Finish { end: RunEnd::Undone, failure: None });
}

#[test]
fn the_end_is_reported_with_backoff_up_to_five_minutes() {
    let spec = spec(Vec::new(), OnFailure::Undo);
    let mut at = fresh(spec);
    let mut delays = Vec::new();
    for attempts in 1..=20 {
        let next = end_failed(&at);
        assert_eq!(next.end_attempts, attempts);
        assert_eq!(decide(spec, &next), Next::Sleep { until: next.due_at });
        delays.push((next.due_at - next.now).num_seconds());
        at = Progress { now: next.due_at, ..next };
        assert!(matches!(decide(spec, &at), Next::Finish { .. }), "at the time itself it is due");
    }
    assert_eq!(delays[..10], [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    assert!(delays[10..].iter().all(|delay| *delay == 300));
    // The first report does not wait for what the run was waiting for.
    let waiting = Progress { due_at: later(at.now, SECOND), end_attempts: 0, ..at };
    assert!(matches!(decide(spec, &waiting), Next::Finish { .. }));
}

#[test]
fn a_time_beyond_the_calendar_is_a_hundred_years_away() {
    let now = DateTime::UNIX_EPOCH;
    assert_eq!(later(now, SECOND), now + TimeDelta::seconds(1));
    assert_eq!(later(now, Duration::MAX), now + TimeDelta::days(36_500));
    assert_eq!(later(DateTime::<Utc>::MAX_UTC, SECOND), DateTime::<Utc>::MAX_UTC);
}

#[test]
fn ends_have_the_names_that_rows_and_metrics_use() {
    let names = [RunEnd::Succeeded, RunEnd::Undone, RunEnd::Stuck].map(RunEnd::name);
    assert_eq!(names, ["succeeded", "undone", "stuck"]);
}

/// A step that was polled has the time of its next look; the step after it does not wait for that.
#[test]
fn the_next_step_is_due_at_once() {
    let spec = two_steps(3, 100);
    let polled = Progress { due_at: later(fresh(spec).now, SECOND), ..fresh(spec) };
    let on = settled(spec, &polled, &Outcome::Done);
    assert_eq!((on.step, on.due_at), (1, polled.now));
}
