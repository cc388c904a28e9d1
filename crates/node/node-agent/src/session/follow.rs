//! One task from its start to the end of its telling.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use kernel::ids::TaskId;
use node_proto::{
    Task, TaskError, Work,
    contract::{Ending, FailureCode, Progress, RESULT, TaskFailure, TaskResult},
    task::CLOCK_TOLERANCE,
};
use tokio::{sync::OwnedSemaphorePermit, time::sleep};

use super::{Session, program::Fetcher, turns::Turn};
use crate::{
    drivers::Done,
    executor::{Executor, Finish, Job, Stop, Track},
    journal::{Journal, JournalError, failed, start_of},
    transport::{Backoff, Connect},
};

/// Progress is reported at least this often, to learn whether the task was cancelled.
const TELL_EVERY: Duration = Duration::from_secs(15);
/// What JSON adds around a result.
const ENVELOPE_BYTES: usize = 4096;
const MESSAGE_BYTES: usize = 2048;

/// Both are given back when the work has really ended.
type Place = (OwnedSemaphorePermit, Option<Turn>);

fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(500), Duration::from_secs(30))
}

impl<C: Connect, J: Journal, E: Executor> Session<C, J, E> {
    pub(super) async fn follow_task(self: Arc<Self>, task: Box<Task>, work: Box<Work>, turn: Option<Turn>) {
        let id = task.task_id;
        let result = match self.place_in_time(&work, turn, task.expires_at).await {
            // It stays `taken` and not started: after the restart it can be leased again.
            _ if self.stopping() => return,
            None => TaskResult { ending: Ending::Refused { reason: TaskError::Expired }, phases: Vec::new() },
            Some(place) => {
                let start = start_of(&work, &self.facts, self.ambient.now());
                match self.ledger.start(id, start).await {
                    Ok(()) => self.execute(*task, *work, place).await,
                    Err(error) => return self.give_up(id, &error).await,
                }
            }
        };
        self.record_and_report(id, result).await;
    }

    pub(super) async fn record_and_report(self: Arc<Self>, id: TaskId, result: TaskResult) {
        self.record(id, result).await;
        self.report_recorded(id).await;
    }

    /// The start could not be written, so nothing was begun, and nothing will be.
    async fn give_up(self: Arc<Self>, id: TaskId, error: &JournalError) {
        self.log.error("journal", &format!("{id} was not begun: {error}"));
        let ending = failed(FailureCode::Journal, error.to_string());
        let result = TaskResult { ending, phases: Vec::new() };
        if self.ledger.finish(id, result.clone()).await.is_ok() {
            self.report_recorded(id).await;
        } else {
            self.ledger.abandon(id).await;
            self.report_unrecorded(id, Box::new(result)).await;
        }
    }

    /// Its turn with its owner, then a place among those of its kind, unless the task expires before.
    async fn place_in_time(
        &self,
        work: &Work,
        turn: Option<Turn>,
        expires_at: DateTime<Utc>,
    ) -> Option<Place> {
        let places = self.places.get(&work.kind())?.clone();
        let left = (expires_at + CLOCK_TOLERANCE).signed_duration_since(self.ambient.now());
        let both = async {
            if let Some(turn) = &turn {
                turn.wait_for_turn().await;
            }
            places.acquire_owned().await
        };
        let place = tokio::time::timeout(left.to_std().ok()?, both).await.ok()?.ok()?;
        Some((place, turn))
    }

    async fn execute(&self, task: Task, work: Work, place: Place) -> TaskResult {
        let (id, kind) = (task.task_id, work.kind());
        let ends_owner = work.ends_owner().map(str::to_owned);
        if let Some(owner) = &ends_owner {
            // Nobody types into what is being removed.
            self.streams.end_owner(owner).await;
        }
        let (name, correlation) = (kind.name(), task.correlation_id);
        let trace = task.traceparent.as_deref().map(|trace| format!(", trace {trace}")).unwrap_or_default();
        self.log.info("tasks", &format!("{id} ({name}) begins, correlation {correlation}{trace}"));
        let track = Arc::new(Track::new(self.ambient.clone()));
        let (finish, ended) = Finish::new(place);
        let programs = Arc::new(Fetcher::new(self.client.clone()));
        self.executor.start(Job { task, work, steps: track.clone(), programs }, finish);
        let ending = tokio::select! {
            ended = ended => self.ending(ended.ok()),
            () = sleep(kind.timeout()) => {
                track.stop(Stop::Timeout);
                let text = format!("it did not end within {} s", kind.timeout().as_secs());
                failed(FailureCode::Timeout, text)
            }
            () = self.report_progress(id, &track) => failed(FailureCode::Driver, "progress ended".to_owned()),
        };
        if let Some(owner) = &ends_owner {
            // What was opened meanwhile: whoever looked the account up before it was removed may have started a session after.
            self.streams.end_owner(owner).await;
        }
        match &ending {
            Ending::Failed { failure } => {
                self.log.warn("tasks", &format!("{id} failed ({:?}): {}", failure.code, failure.message));
            }
            _ => self.log.info("tasks", &format!("{id} is done")),
        }
        TaskResult { ending, phases: track.close() }
    }

    fn ending(&self, outcome: Option<Done<serde_json::Value>>) -> Ending {
        match outcome {
            None => failed(FailureCode::Driver, "the handler broke down without an answer".to_owned()),
            Some(Err(error)) => {
                let message = self.log.redacted(&error.message, MESSAGE_BYTES);
                Ending::Failed { failure: TaskFailure { code: error.code, message, cause: error.cause } }
            }
            Some(Ok(output)) => {
                let bytes = serde_json::to_vec(&output).map_or(usize::MAX, |bytes| bytes.len());
                if bytes.saturating_add(ENVELOPE_BYTES) > RESULT.body_limit {
                    failed(
                        FailureCode::Driver,
                        "the work is done, but its output is too large to be told".to_owned(),
                    )
                } else {
                    Ending::Succeeded { output }
                }
            }
        }
    }

    /// Reports each phase when it starts. A failed report is repeated with the next one. Never returns.
    async fn report_progress(&self, id: TaskId, track: &Track) {
        let mut pauses = pauses();
        loop {
            match self.client.progress(id, &Progress { phases: track.phases() }).await {
                Ok(answer) => {
                    pauses.succeeded();
                    if answer.cancelled {
                        track.stop(Stop::Cancelled);
                    }
                    tokio::select! {
                        () = track.changed() => {}
                        () = sleep(TELL_EVERY) => {}
                    }
                }
                Err(error) if error.is_transient() => sleep(pauses.failed(&self.ambient)).await,
                Err(error) => {
                    self.log.warn("tasks", &format!("progress of {id} is not heard: {error}"));
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Retries until the result is written: a result that is not must not be reported.
    async fn record(&self, id: TaskId, result: TaskResult) {
        let mut pauses = pauses();
        loop {
            match self.ledger.finish(id, result.clone()).await {
                Ok(()) => return,
                Err(JournalError::WrongStep) => {
                    return self.log.error("journal", &format!("{id} ended twice"));
                }
                Err(error) => {
                    self.log.error("journal", &format!("the result of {id} cannot be written yet: {error}"));
                    sleep(pauses.failed(&self.ambient)).await;
                }
            }
        }
    }

    /// Reports the result of the journal until the control plane has acknowledged it.
    pub(super) async fn report_recorded(self: Arc<Self>, id: TaskId) {
        match self.ledger.result(id).await {
            Ok(result) => {
                self.report(id, &result).await;
                // If this write fails, the result is reported again after a restart.
                if let Err(error) = self.ledger.mark_reported(id).await {
                    self.log.warn("journal", &format!("{id}: {error}"));
                }
            }
            Err(error) => self.log.error("journal", &format!("{id}: {error}")),
        }
        self.release(id);
    }

    pub(super) async fn report_unrecorded(self: Arc<Self>, id: TaskId, result: Box<TaskResult>) {
        self.report(id, &result).await;
        self.release(id);
    }

    async fn report(&self, id: TaskId, result: &TaskResult) {
        let mut pauses = pauses();
        loop {
            match self.client.result(id, result).await {
                Ok(_) => return,
                Err(error) if error.is_transient() => {
                    self.note_error("reporting a result", &error);
                    let pause = error.retry_after().unwrap_or(Duration::ZERO);
                    sleep(pauses.failed(&self.ambient).max(pause)).await;
                }
                Err(error) => {
                    return self.log.error("tasks", &format!("the result of {id} was refused: {error}"));
                }
            }
        }
    }
}
