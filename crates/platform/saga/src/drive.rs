//! Drives one run on lease: decides, calls, records, until there is nothing to do for now.

use pg::WriteTx;
use serde_json::Value;
use telemetry::names;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    call::{self, Call},
    decide::{self, Next, Outcome, Progress, RunEnd, Settled, Waiting, decide, later},
    engine::Inner,
    failure::{FailureCode, RunFailure, StepError},
    faults::{At, FaultPoint},
    readable,
    request::StepState,
    spec::{SagaSpec, StepSpec},
    step::{Saga, Signal, Step, wake_key},
    store::{self, Applied, Change, Entry, Run, UPKEEP},
    transaction::{Stop, away, commit, context},
};

/// Leases in a row that bring nothing before that counts as a failed attempt.
const MAX_UNFINISHED: u32 = 5;

enum Moved {
    On,
    /// Nothing to do for now, or nothing that can be done.
    Away,
    /// The run is not as it was read.
    Lost,
}

/// A call that committed.
struct Did {
    progress: Progress,
    end: Option<RunEnd>,
    applied: Applied,
    output: Option<Value>,
    goes_on: bool,
}

impl Inner {
    pub(crate) async fn drive(&self, saga: &dyn Saga, mut run: Run, stop: &CancellationToken) {
        loop {
            run.progress.now = self.db.ambient().now();
            let moved = Box::pin(self.advance(saga, &mut run)).await;
            if self.dead.is_cancelled() {
                return;
            }
            match moved {
                Moved::On if stop.is_cancelled() => {
                    if let Err(error) = store::release(&self.db, run.id, run.fence).await {
                        tracing::debug!(error = %error, "a run could not be handed back; its lease ends");
                    }
                    return;
                }
                Moved::On => {}
                Moved::Away => return,
                Moved::Lost => match store::reload(&self.db, &run).await {
                    Ok(Some(fresh)) => run = fresh,
                    Ok(None) => return tracing::debug!("the run went to another worker"),
                    Err(error) => return away(&error),
                },
            }
        }
    }

    async fn advance(&self, saga: &dyn Saga, run: &mut Run) -> Moved {
        let signal = |run: &Run, timed_out: bool| match (&run.signal, timed_out) {
            (Some(signal), false) => Signal::Woken(signal.clone()),
            _ => Signal::TimedOut,
        };
        match decide(saga.spec(), &run.progress) {
            Next::Run { .. } => self.call(saga, run, Call::Run).await,
            Next::Undo { .. } => self.call(saga, run, Call::Undo).await,
            Next::Resume { timed_out, .. } => {
                let signal = signal(run, timed_out);
                self.call(saga, run, Call::Resume(signal)).await
            }
            Next::ResumeUndo { timed_out, .. } => {
                let signal = signal(run, timed_out);
                self.call(saga, run, Call::ResumeUndo(signal)).await
            }
            Next::Sleep { until } => {
                let progress = Progress { due_at: until, ..run.progress.clone() };
                self.note(saga.spec(), run, progress, None).await
            }
            Next::StartUndo { step, failure } => {
                tracing::info!(
                    failure_code = failure.code.name(),
                    failure = failure.text,
                    "a workflow is undone"
                );
                let progress = Progress {
                    undoing: true,
                    step,
                    attempt: 1,
                    begun: true,
                    waiting: Waiting::No,
                    attempt_deadline: None,
                    due_at: run.progress.now,
                    failure: Some(bounded(failure)),
                    ..run.progress.clone()
                };
                self.note(saga.spec(), run, progress, None).await
            }
            // What the domain does at the end may bring what was waited for: nobody waits any more.
            Next::Finish { failure, .. } if run.progress.waiting != Waiting::No => {
                let progress = Progress {
                    waiting: Waiting::No,
                    attempt_deadline: None,
                    due_at: run.progress.now,
                    failure: failure.map(bounded),
                    ..run.progress.clone()
                };
                self.note(saga.spec(), run, progress, None).await
            }
            Next::Finish { end, failure } => {
                run.progress.failure = failure.map(bounded);
                self.finish(saga, run, end).await
            }
        }
    }

    async fn call(&self, saga: &dyn Saga, run: &mut Run, call: Call) -> Moved {
        let spec = saga.spec();
        let Some(step) = spec.step(run.progress.step) else { return Moved::Away };
        let (started_at, clock) = (run.progress.now, Instant::now());
        let did = self.attempt(saga, run, step, &call).await;
        metrics::histogram!(names::SAGA_STEP_SECONDS, "saga" => spec.name, "step" => step.name)
            .record(clock.elapsed().as_secs_f64());
        match did {
            Ok(Did { end: Some(end), .. }) => {
                run_ended(spec, end, run.progress.failure.as_ref());
                Moved::Away
            }
            Ok(did) => {
                if let (Some(output), Value::Object(outputs)) = (did.output, &mut run.outputs) {
                    outputs.insert(step.name.to_owned(), output);
                }
                self.moved(run, did.progress, did.applied, did.goes_on)
            }
            Err(Stop::Failed(error)) => {
                tracing::info!(
                    step = step.name,
                    undo = run.progress.undoing,
                    attempt = run.progress.attempt,
                    failure_code = error.code.name(),
                    error = %error,
                    "an attempt of a workflow's step failed"
                );
                if error.code == FailureCode::Bug {
                    telemetry::bug_found(&format!("{} of {}", step.name, spec.name), &error.detail);
                }
                let error = StepError { detail: readable(&error.detail), ..error };
                let entry = Entry {
                    step: step.name,
                    undo: run.progress.undoing,
                    attempt: run.progress.attempt,
                    state: StepState::Failed,
                    failure: Some((error.code.clone(), error.to_string())),
                    started_at,
                };
                run.progress.now = self.db.ambient().now();
                match decide::settle(spec, &run.progress, &Outcome::Failed(error)) {
                    Settled::On(progress) => self.note(spec, run, progress, Some(entry)).await,
                    Settled::End(_) => Moved::Away,
                }
            }
            Err(Stop::Lost) => Moved::Lost,
            Err(Stop::Away | Stop::Died) => Moved::Away,
        }
    }

    /// One transaction: the step's effect, its record, and the run's progress.
    async fn attempt(&self, saga: &dyn Saga, run: &Run, step: &StepSpec, call: &Call) -> Result<Did, Stop> {
        if run.unfinished > MAX_UNFINISHED {
            let text = "no call came to its end: the worker went away each time";
            return Err(StepError::retry(FailureCode::TimedOut, text).into());
        }
        let point = |at| FaultPoint {
            at,
            run_id: run.id,
            step: step.name,
            undo: run.progress.undoing,
            resumed: call.resumes(),
            attempt: run.progress.attempt,
        };
        self.fault(run, point(At::BeforeStep)).await?;
        let mut tx = self.begin(saga.spec(), run).await?;
        let within = async {
            let did = self.within(&mut tx, saga, run, step, call).await?;
            self.fault(run, point(At::InStep)).await?;
            self.record(&mut tx, saga.spec(), run, step, did).await
        };
        match Box::pin(within).await {
            Ok(did) => {
                commit(tx).await?;
                self.fault(run, point(At::AfterCommit)).await?;
                Ok(did)
            }
            Err(Stop::Died) => Err(Stop::Died),
            // Rolled back here rather than by drop, so that the next attempt does not wait for the locks.
            Err(stop) => {
                tx.roll_back().await;
                Err(stop)
            }
        }
    }

    /// The domain's code, and what follows from how it ended.
    async fn within(
        &self,
        tx: &mut WriteTx,
        saga: &dyn Saga,
        run: &Run,
        step: &StepSpec,
        call: &Call,
    ) -> Result<(Settled, StepState, Option<Value>), Stop> {
        let at = &run.progress;
        let mut cx = context(tx, run, step.name, &run.outputs);
        cx.deadline = at.attempt_deadline.unwrap_or(later(at.now, step.timeout));
        let (outcome, state, output) = match call::step(saga, (at.step, step), &mut cx, call).await? {
            Step::Done(output) => (Outcome::Done, StepState::Done, (!at.undoing).then_some(output)),
            _ if at.overdue() => {
                return Err(StepError::retry(FailureCode::TimedOut, "the step did not end in time").into());
            }
            Step::Suspended => (Outcome::Suspended, StepState::Waiting, None),
            Step::Again { after } => (Outcome::Again { after }, StepState::Waiting, None),
        };
        let settled = decide::settle(saga.spec(), at, &outcome);
        if let Settled::End(end) = settled {
            let mut outputs = run.outputs.clone();
            if let (Some(output), Value::Object(outputs)) = (&output, &mut outputs) {
                outputs.insert(step.name.to_owned(), output.clone());
            }
            call::ended(saga, &mut context(tx, run, step.name, &outputs), end).await?;
        }
        Ok((settled, state, output))
    }

    async fn record(
        &self,
        tx: &mut WriteTx,
        spec: &SagaSpec,
        run: &Run,
        step: &StepSpec,
        (settled, state, output): (Settled, StepState, Option<Value>),
    ) -> Result<Did, Stop> {
        let (progress, end) = match settled {
            Settled::On(progress) => (progress, None),
            Settled::End(end) => (Progress { due_at: run.progress.now, ..run.progress.clone() }, Some(end)),
        };
        let next = decide(spec, &progress);
        let goes_on = end.is_none() && !matches!(next, Next::Sleep { .. });
        let wake_key = end.is_none().then(|| key_of(run, spec, &progress)).flatten();
        let change = Change {
            progress: &progress,
            end,
            goes_on,
            begins: goes_on && matches!(next, Next::Run { .. }),
            wake_key,
            output: output.as_ref().map(|output| (step.name, output)),
            entry: Some(Entry {
                step: step.name,
                undo: run.progress.undoing,
                attempt: run.progress.attempt,
                state,
                failure: None,
                started_at: run.progress.now,
            }),
        };
        let now = self.db.ambient().now();
        let applied = store::apply(tx.conn(), now, run, change).await.map_err(StepError::from)?;
        let applied = applied.ok_or(Stop::Lost)?;
        Ok(Did { progress, end, applied, output, goes_on })
    }

    /// Records what needs no effect of the domain.
    async fn note(
        &self,
        spec: &SagaSpec,
        run: &mut Run,
        progress: Progress,
        entry: Option<Entry<'_>>,
    ) -> Moved {
        let goes_on = !matches!(decide(spec, &progress), Next::Sleep { .. });
        // A sleeping run keeps what it waits for.
        let wake_key = key_of(run, spec, &progress);
        let change =
            Change { progress: &progress, end: None, goes_on, begins: false, wake_key, output: None, entry };
        let now = self.db.ambient().now();
        let applied = async {
            let mut upkeep = self.db.upkeep(UPKEEP).await?;
            Ok::<_, pg::Error>(store::apply(upkeep.conn(), now, run, change).await?)
        };
        match applied.await {
            Ok(Some(applied)) => self.moved(run, progress, applied, goes_on),
            Ok(None) => Moved::Lost,
            Err(error) => {
                away(&error);
                Moved::Away
            }
        }
    }

    fn moved(&self, run: &mut Run, progress: Progress, applied: Applied, goes_on: bool) -> Moved {
        if !goes_on {
            self.note_due(if applied.cancel.is_some() { run.progress.now } else { progress.due_at });
            return Moved::Away;
        }
        run.progress = Progress { cancel: applied.cancel, begun: applied.begun, ..progress };
        run.signal = None;
        run.unfinished = 0;
        Moved::On
    }

    /// Ends the run in a transaction of its own, when there was no last step to do it with.
    async fn finish(&self, saga: &dyn Saga, run: &mut Run, end: RunEnd) -> Moved {
        let spec = saga.spec();
        match self.end(saga, run, end).await {
            Ok(()) => {
                run_ended(spec, end, run.progress.failure.as_ref());
                Moved::Away
            }
            Err(Stop::Failed(error)) => {
                metrics::counter!(names::SAGA_END_FAILURES_TOTAL, "name" => spec.name).increment(1);
                tracing::error!(
                    end = end.name(),
                    failure_code = error.code.name(),
                    error = %error,
                    attempts = run.progress.end_attempts.saturating_add(1),
                    "a workflow has ended, but its end could not be recorded in its domain; retrying"
                );
                run.progress.now = self.db.ambient().now();
                let progress = decide::end_failed(&run.progress);
                self.note(spec, run, progress, None).await
            }
            Err(Stop::Lost) => Moved::Lost,
            Err(Stop::Away | Stop::Died) => Moved::Away,
        }
    }

    async fn end(&self, saga: &dyn Saga, run: &Run, end: RunEnd) -> Result<(), Stop> {
        let spec = saga.spec();
        let mut tx = self.begin(spec, run).await?;
        let within = async {
            let step = spec.step(run.progress.step).map_or("", |step| step.name);
            call::ended(saga, &mut context(&mut tx, run, step, &run.outputs), end).await?;
            let change = Change {
                progress: &run.progress,
                end: Some(end),
                goes_on: false,
                begins: false,
                wake_key: None,
                output: None,
                entry: None,
            };
            let now = self.db.ambient().now();
            let applied = store::apply(tx.conn(), now, run, change).await.map_err(StepError::from)?;
            applied.ok_or(Stop::Lost)
        };
        match Box::pin(within).await {
            Ok(_) => commit(tx).await,
            Err(stop) => {
                tx.roll_back().await;
                Err(stop)
            }
        }
    }
}

fn bounded(failure: RunFailure) -> RunFailure {
    RunFailure { text: readable(&failure.text), ..failure }
}

fn run_ended(spec: &SagaSpec, end: RunEnd, failure: Option<&RunFailure>) {
    metrics::counter!(names::SAGA_RUNS_TOTAL, "name" => spec.name, "end" => end.name()).increment(1);
    let failure = failure.map(|failure| failure.text.as_str());
    match end {
        RunEnd::Stuck => tracing::error!(failure, "a workflow is stuck: a person must look"),
        _ => tracing::info!(end = end.name(), failure, "a workflow ended"),
    }
}

fn key_of(run: &Run, spec: &SagaSpec, progress: &Progress) -> Option<String> {
    let step = spec.step(progress.step).filter(|_| progress.waiting == Waiting::Suspended)?;
    Some(wake_key(run.id, step.name, progress.undoing, progress.attempt))
}
