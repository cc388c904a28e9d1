use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::spec::Retry;

pub(super) fn spec(steps: Vec<(bool, u32, u64)>, on_failure: OnFailure) -> &'static SagaSpec {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let steps: Vec<StepSpec> = steps
        .into_iter()
        .zip(NAMES)
        .map(|((has_undo, attempts, delay), name)| StepSpec {
            name,
            waits: true,
            has_undo,
            undo_waits: has_undo,
            timeout: Duration::from_secs(10),
            retry: Retry::times(attempts, Duration::from_millis(delay)),
        })
        .collect();
    Box::leak(Box::new(SagaSpec {
        name: "test",
        version: 1,
        steps,
        deadline: Duration::from_secs(600),
        on_failure,
        audit_action: "test.step",
    }))
}

pub(super) fn fresh(spec: &SagaSpec) -> Progress {
    let now = DateTime::UNIX_EPOCH;
    Progress {
        undoing: false,
        step: 0,
        attempt: 1,
        begun: false,
        waiting: Waiting::No,
        attempt_deadline: None,
        due_at: now,
        failure: None,
        cancel: None,
        end_attempts: 0,
        deadline: later(now, spec.deadline),
        now,
    }
}

/// What happens around a run, drawn one after the other and from the start again.
#[derive(Clone, Debug)]
struct Luck {
    outcomes: Vec<Outcome>,
    /// A suspended step is woken rather than left to its deadline.
    woken: Vec<bool>,
    /// The run is cancelled before this move.
    cancel_at: Option<usize>,
    /// Telling the domain of the end fails this often.
    end_failures: u32,
}

#[derive(Debug, Default)]
struct Story {
    end: Option<RunEnd>,
    /// Every call: step, backwards, attempt.
    calls: Vec<(usize, bool, u32)>,
    begun: Vec<usize>,
    undone: Vec<usize>,
    cancelled: bool,
    out_of_time: bool,
    moves: usize,
}

/// An engine without a database.
fn play(spec: &'static SagaSpec, luck: &Luck) -> Story {
    let mut at = fresh(spec);
    let mut story = Story::default();
    let (mut drawn, mut slept) = (0, 0);
    while story.end.is_none() && story.moves < 10_000 {
        if luck.cancel_at == Some(story.moves) && !at.undoing {
            at.cancel = Some("not wanted".to_owned());
            story.cancelled = true;
        }
        story.moves += 1;
        let undo = match decide(spec, &at) {
            Next::Sleep { until } => {
                assert!(until > at.now, "sleeping until now is not sleeping: {at:?}");
                if at.waiting == Waiting::Suspended && luck.woken[slept % luck.woken.len()] {
                    // Nothing is brought in no time at all.
                    at.now = until.min(later(at.now, Duration::from_millis(500)));
                    at.waiting = Waiting::Woken;
                } else {
                    at.now = until;
                }
                slept += 1;
                continue;
            }
            Next::StartUndo { step, failure } => {
                story.out_of_time = at.failure.is_none() && at.cancel.is_none();
                at = Progress { undoing: true, step, attempt: 1, failure: Some(failure), ..at };
                (at.waiting, at.attempt_deadline, at.due_at) = (Waiting::No, None, at.now);
                continue;
            }
            Next::Finish { end, .. } => {
                if at.end_attempts < luck.end_failures {
                    at = end_failed(&at);
                } else {
                    story.end = Some(end);
                }
                continue;
            }
            Next::Run { .. } | Next::Resume { .. } => false,
            Next::Undo { .. } | Next::ResumeUndo { .. } => true,
        };
        assert_eq!(undo, at.undoing);
        story.calls.push((at.step, undo, at.attempt));
        at.begun = true;
        if !undo && story.begun.last() != Some(&at.step) {
            story.begun.push(at.step);
        }
        let outcome = &luck.outcomes[drawn % luck.outcomes.len()];
        drawn += 1;
        if undo && *outcome == Outcome::Done {
            story.undone.push(at.step);
        }
        match settle(spec, &at, outcome) {
            Settled::On(on) => at = on,
            Settled::End(end) => story.end = Some(end),
        }
    }
    story
}

pub(super) fn error(detail: &str, for_good: bool) -> StepError {
    StepError { code: FailureCode::Internal, detail: detail.to_owned(), for_good }
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let failed = |for_good| Outcome::Failed(error("bad luck", for_good));
    prop_oneof![
        6 => Just(Outcome::Done),
        2 => Just(Outcome::Suspended),
        2 => (0u64..20_000).prop_map(|ms| Outcome::Again { after: Duration::from_millis(ms) }),
        2 => Just(failed(false)),
        1 => Just(failed(true)),
    ]
}

fn luck() -> impl Strategy<Value = Luck> {
    (
        prop::collection::vec(outcome(), 1..20),
        prop::collection::vec(any::<bool>(), 1..8),
        prop::option::of(0usize..12),
        0u32..8,
    )
        .prop_map(|(outcomes, woken, cancel_at, end_failures)| Luck {
            outcomes,
            woken,
            cancel_at,
            end_failures,
        })
}

fn any_spec() -> impl Strategy<Value = &'static SagaSpec> {
    let step = (any::<bool>(), 0u32..5, 0u64..5_000);
    let on_failure = prop_oneof![Just(OnFailure::Undo), Just(OnFailure::Stuck)];
    (prop::collection::vec(step, 0..6), on_failure).prop_map(|(steps, on_failure)| spec(steps, on_failure))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_happens_a_run_ends_with_bounded_attempts(spec in any_spec(), luck in luck()) {
        let story = play(spec, &luck);
        prop_assert!(story.end.is_some(), "no end after {} moves", story.moves);
        let mut most = BTreeMap::new();
        for (step, undo, attempt) in &story.calls {
            let highest = most.entry((*step, *undo)).or_insert(0);
            prop_assert!(*attempt >= *highest, "attempts only rise");
            *highest = *attempt;
            let allowed = spec.steps[*step].retry.attempts.max(if *undo { 3 } else { 1 });
            prop_assert!(*attempt <= allowed, "{story:?}");
        }
    }

    #[test]
    fn undoing_goes_backwards_through_exactly_what_was_begun(spec in any_spec(), luck in luck()) {
        let story = play(spec, &luck);
        let mut expected: Vec<usize> = story.begun.clone();
        expected.retain(|step| spec.steps[*step].has_undo);
        expected.reverse();
        match (story.end, spec.on_failure) {
            (Some(RunEnd::Undone), _) => prop_assert_eq!(&story.undone, &expected, "{:?}", story),
            // Where it got stuck it stays: what is before it is not touched.
            (Some(RunEnd::Stuck), OnFailure::Undo) => {
                prop_assert!(story.undone.len() < expected.len(), "{:?}", story);
                prop_assert_eq!(&story.undone[..], &expected[..story.undone.len()], "{:?}", story);
            }
            _ => prop_assert!(story.calls.iter().all(|(_, undo, _)| !undo), "{:?}", story),
        }
        prop_assert!(spec.on_failure == OnFailure::Undo || story.end != Some(RunEnd::Undone));
    }

    #[test]
    fn a_run_that_was_cancelled_or_ran_out_of_time_does_not_succeed(spec in any_spec(), luck in luck()) {
        let story = play(spec, &luck);
        if story.cancelled || story.out_of_time {
            prop_assert!(story.end != Some(RunEnd::Succeeded), "{story:?}");
        }
        if story.end == Some(RunEnd::Succeeded) {
            prop_assert_eq!(story.begun, (0..spec.steps.len()).collect::<Vec<_>>());
        }
    }
}

const TWO: [(bool, u32, u64); 2] = [(true, 2, 100), (true, 1, 0)];

#[test]
fn the_deadline_of_the_run_turns_it_round_even_while_it_waits() {
    let spec = spec(TWO.to_vec(), OnFailure::Undo);
    let mut at = fresh(spec);
    (at.begun, at.waiting, at.attempt_deadline) =
        (true, Waiting::Suspended, Some(later(at.now, spec.deadline * 2)));
    assert_eq!(decide(spec, &at), Next::Sleep { until: at.deadline });
    at.now = at.deadline;
    assert!(matches!(decide(spec, &at), Next::StartUndo { step: 0, .. }));
}

#[test]
fn a_cancelled_step_that_was_never_called_is_not_taken_back() {
    let spec = spec(TWO.to_vec(), OnFailure::Undo);
    let mut at = Progress { step: 1, cancel: Some("no".to_owned()), ..fresh(spec) };
    assert!(matches!(decide(spec, &at), Next::StartUndo { step: 0, .. }));
    at.begun = true;
    assert!(matches!(decide(spec, &at), Next::StartUndo { step: 1, .. }));
    at = Progress { step: 0, begun: false, ..at };
    assert!(matches!(decide(spec, &at), Next::Finish { end: RunEnd::Undone, .. }));
}

#[test]
fn a_forward_only_saga_gets_stuck_rather_than_undone() {
    let spec = spec(TWO.to_vec(), OnFailure::Stuck);
    let at = Progress { begun: true, ..fresh(spec) };
    let failed = Outcome::Failed(error("no", true));
    let Settled::On(at) = settle(spec, &at, &failed) else { panic!("it is not over yet") };
    let Next::Finish { end, failure } = decide(spec, &at) else { panic!("nothing else is left") };
    let failure = failure.unwrap();
    assert_eq!((end, failure.code, failure.text.as_str()), (RunEnd::Stuck, FailureCode::Internal, "a: no"));
}

#[test]
fn a_retry_waits_longer_each_time_and_a_stale_wait_is_over() {
    let spec = spec(vec![(true, 4, 100)], OnFailure::Undo);
    let mut at = Progress { begun: true, ..fresh(spec) };
    let mut delays = Vec::new();
    for _ in 0..3 {
        let Settled::On(on) = settle(spec, &at, &Outcome::Failed(error("", false))) else {
            panic!("attempts are left")
        };
        delays.push((on.due_at - on.now).num_milliseconds());
        at = Progress { now: on.due_at, ..on };
    }
    assert_eq!(delays, [100, 200, 400]);
    assert_eq!(at.attempt, 4);
}
