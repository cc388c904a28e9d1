//! What comes next: pure, so that it can be proved, and so that every engine does the same.
//!
//! [`decide`] says what to do with a run as it stands; [`settle`] says how it stands after a call. Between the two
//! an engine only calls and records. An engine marks a step as begun before it calls it for the first time.
//!
//! **Why every run ends.** Forwards: an attempt has a deadline, after which there is one last call; a failed
//! attempt is the last, or raises the number of attempts, which is bounded; the steps are finitely many; and the
//! run has a deadline. Backwards: the same with bounded attempts, and each step taken back leads to an earlier one.
//! What is left is to tell the domain of the end: a run ends in the transaction that does, so that nothing is held for a
//! run that is over. That is retried with backoff for as long as it fails, and counted (`saga_end_failures_total`).

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    failure::{FailureCode, RunFailure, StepError},
    spec::{OnFailure, SagaSpec, StepSpec},
};

/// How a run stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub undoing: bool,
    /// The step that is being run or taken back, and which attempt; from 1.
    pub step: usize,
    pub attempt: u32,
    /// The step may have been called.
    pub begun: bool,
    pub waiting: Waiting,
    /// Set when a call of the attempt has committed and the step is not over.
    pub attempt_deadline: Option<DateTime<Utc>>,
    /// Nothing to do before, unless something is brought.
    pub due_at: DateTime<Utc>,
    /// Why it goes forward no more.
    pub failure: Option<RunFailure>,
    /// Why somebody wants it taken back.
    pub cancel: Option<String>,
    /// How often telling the domain of the end has failed.
    pub end_attempts: u32,
    /// Of the whole run; what is being taken back has no deadline but its attempts.
    pub deadline: DateTime<Utc>,
    pub now: DateTime<Utc>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The next call is `run` or `undo`.
    No,
    Suspended,
    /// What it waited for has come.
    Woken,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    Run {
        step: usize,
        attempt: u32,
    },
    Resume {
        step: usize,
        attempt: u32,
        timed_out: bool,
    },
    Undo {
        step: usize,
        attempt: u32,
    },
    ResumeUndo {
        step: usize,
        attempt: u32,
        timed_out: bool,
    },
    Sleep {
        until: DateTime<Utc>,
    },
    /// Turns round: `step` is the first to be taken back.
    StartUndo {
        step: usize,
        failure: RunFailure,
    },
    /// The domain is told of the end, in the transaction that ends the run.
    Finish {
        end: RunEnd,
        failure: Option<RunFailure>,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    Succeeded,
    /// A step failed, or the run was cancelled; everything that was done is taken back.
    Undone,
    /// It failed and could not all be taken back: a person must look.
    Stuck,
}

impl RunEnd {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Undone => "undone",
            Self::Stuck => "stuck",
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done,
    Suspended,
    Again { after: Duration },
    Failed(StepError),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    On(Progress),
    End(RunEnd),
}

const MIN_UNDO_ATTEMPTS: u32 = 3;
const MIN_UNDO_DELAY: Duration = Duration::from_millis(200);
const MIN_AGAIN: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_secs(300);

pub fn decide(spec: &SagaSpec, at: &Progress) -> Next {
    if !at.undoing
        && let Some(failure) = stopped(at)
    {
        return give_up(spec, at, failure);
    }
    let Some(step) = spec.step(at.step) else {
        // A saga without steps has nothing to do and nothing to take back.
        let end = if at.undoing { RunEnd::Undone } else { RunEnd::Succeeded };
        return finish(at, end, at.failure.clone());
    };
    if at.undoing && at.attempt > undo_attempts(step) {
        return finish(at, RunEnd::Stuck, at.failure.clone());
    }
    let (step, attempt) = (at.step, at.attempt);
    match (at.waiting, at.undoing) {
        (Waiting::Woken, false) => Next::Resume { step, attempt, timed_out: false },
        (Waiting::Woken, true) => Next::ResumeUndo { step, attempt, timed_out: false },
        (Waiting::Suspended, false) if at.overdue() => Next::Resume { step, attempt, timed_out: true },
        (Waiting::Suspended, true) if at.overdue() => Next::ResumeUndo { step, attempt, timed_out: true },
        (Waiting::Suspended, _) => {
            Next::Sleep { until: at.bounded(at.attempt_deadline.unwrap_or(at.due_at)) }
        }
        (Waiting::No, _) if at.due_at > at.now => Next::Sleep { until: at.bounded(at.due_at) },
        (Waiting::No, false) => Next::Run { step, attempt },
        (Waiting::No, true) => Next::Undo { step, attempt },
    }
}

/// How the run stands after a call of the step that [`decide`] named.
pub fn settle(spec: &SagaSpec, at: &Progress, outcome: &Outcome) -> Settled {
    let Some(step) = spec.step(at.step) else { return Settled::End(RunEnd::Stuck) };
    let deadline = at.attempt_deadline.unwrap_or(later(at.now, step.timeout));
    let mut on = at.clone();
    on.begun = true;
    on.waiting = Waiting::No;
    match outcome {
        Outcome::Done => {
            let next = if at.undoing {
                undo_from(spec, at.step)
            } else {
                Some(at.step + 1).filter(|next| *next < spec.steps.len())
            };
            let Some(next) = next else {
                return Settled::End(if at.undoing { RunEnd::Undone } else { RunEnd::Succeeded });
            };
            on = Progress { step: next, attempt: 1, attempt_deadline: None, due_at: at.now, ..on };
            on.begun = at.undoing;
        }
        Outcome::Suspended | Outcome::Again { .. } if at.overdue() => {
            let text = format!("{} did not end in time", step.name);
            return settle(spec, at, &Outcome::Failed(StepError::retry(FailureCode::TimedOut, text)));
        }
        Outcome::Suspended => {
            on.waiting = Waiting::Suspended;
            on.attempt_deadline = Some(deadline);
            on.due_at = on.bounded(deadline);
        }
        Outcome::Again { after } => {
            on.attempt_deadline = Some(deadline);
            on.due_at = on.bounded(later(at.now, (*after).max(MIN_AGAIN)).min(deadline));
        }
        Outcome::Failed(error) => failed(&mut on, step, error),
    }
    Settled::On(on)
}

fn failed(on: &mut Progress, step: &StepSpec, error: &StepError) {
    let attempts = if on.undoing { undo_attempts(step) } else { step.retry.attempts.max(1) };
    on.attempt_deadline = None;
    on.due_at = on.now;
    if !error.for_good && on.attempt < attempts {
        let least = if on.undoing { MIN_UNDO_DELAY } else { Duration::ZERO };
        let doubled = 1u32.checked_shl(on.attempt - 1).unwrap_or(u32::MAX);
        let delay = step.retry.first_delay.max(least).saturating_mul(doubled).min(MAX_DELAY);
        on.due_at = on.bounded(later(on.now, delay));
        on.attempt += 1;
    } else if on.undoing {
        on.attempt = attempts + 1;
        // The first failure stays the reason; that it could not be taken back is said with it.
        let text = format!("{} could not be taken back: {error}", step.name);
        on.failure = Some(match on.failure.take() {
            Some(first) => RunFailure { text: format!("{}; {text}", first.text), ..first },
            None => RunFailure { code: error.code.clone(), text },
        });
    } else {
        on.failure = Some(RunFailure { code: error.code.clone(), text: format!("{}: {error}", step.name) });
    }
}

/// The end could not be recorded in the domain: retried with backoff.
pub fn end_failed(at: &Progress) -> Progress {
    let delay = (Duration::from_secs(1) * 2u32.pow(at.end_attempts.min(16))).min(MAX_DELAY);
    Progress { end_attempts: at.end_attempts.saturating_add(1), due_at: later(at.now, delay), ..at.clone() }
}

impl Progress {
    /// The attempt's time is over: nothing but its end is taken from it.
    pub fn overdue(&self) -> bool {
        self.attempt_deadline.is_some_and(|deadline| deadline <= self.now)
    }

    fn bounded(&self, time: DateTime<Utc>) -> DateTime<Utc> {
        if self.undoing { time } else { time.min(self.deadline) }
    }
}

/// Why the run goes forward no more, when it does not.
fn stopped(at: &Progress) -> Option<RunFailure> {
    let cancelled = || {
        let reason = at.cancel.as_ref()?;
        Some(RunFailure { code: FailureCode::Cancelled, text: format!("cancelled: {reason}") })
    };
    let over = || {
        let text = "the run took longer than it may".to_owned();
        (at.deadline <= at.now).then_some(RunFailure { code: FailureCode::DeadlineExceeded, text })
    };
    at.failure.clone().or_else(cancelled).or_else(over)
}

fn give_up(spec: &SagaSpec, at: &Progress, failure: RunFailure) -> Next {
    if spec.on_failure == OnFailure::Stuck {
        return finish(at, RunEnd::Stuck, Some(failure));
    }
    match undo_from(spec, if at.begun { at.step + 1 } else { at.step }) {
        Some(step) => Next::StartUndo { step, failure },
        None => finish(at, RunEnd::Undone, Some(failure)),
    }
}

fn finish(at: &Progress, end: RunEnd, failure: Option<RunFailure>) -> Next {
    if at.end_attempts > 0 && at.due_at > at.now {
        return Next::Sleep { until: at.due_at };
    }
    Next::Finish { end, failure }
}

/// The last step before `before` that is taken back.
fn undo_from(spec: &SagaSpec, before: usize) -> Option<usize> {
    spec.steps.iter().take(before).rposition(|step| step.has_undo)
}

fn undo_attempts(step: &StepSpec) -> u32 {
    step.retry.attempts.max(MIN_UNDO_ATTEMPTS)
}

/// A time that far away is as good as never.
pub(crate) fn later(now: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    let by = TimeDelta::from_std(by).unwrap_or(TimeDelta::MAX).min(TimeDelta::days(36_500));
    now.checked_add_signed(by).unwrap_or(now)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "decide_bounds_tests.rs"]
mod bounds_tests;
