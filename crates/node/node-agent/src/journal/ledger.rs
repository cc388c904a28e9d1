//! The steps of a task, each allowed only after the one before, each durable before it counts.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use kernel::ids::TaskId;
use node_proto::{
    Task, TaskType, Work,
    catalog::{Rebooted, SelfUpdated},
    contract::{Ending, FailureCode, TaskFailure, TaskResult},
    task::CLOCK_TOLERANCE,
};
use tokio::sync::Mutex;

use super::{Journal, JournalError, Record, Start, State};
use crate::identity::Facts;

/// The most records that are kept.
pub const MOST_RECORDS: usize = 4096;
/// Beyond the time at which no check would let the task pass again.
const KEPT_LONGER: TimeDelta = TimeDelta::days(1);

/// What the ledger says about a task that was handed over.
#[derive(Debug, PartialEq)]
pub enum Seen {
    New,
    /// Taken over, and not finished.
    Active,
    Ended(Box<TaskResult>),
}

/// What an agent finds when it starts.
#[derive(Debug, Default, PartialEq)]
pub struct Recovered {
    /// Ended, and to be told.
    pub untold: Vec<TaskId>,
    /// Ended, but the journal cannot be written: to be recorded and then told.
    pub unwritten: Vec<(TaskId, TaskResult)>,
    /// Replaced the agent with this one: succeeds once this agent has proved to work.
    pub awaits_proof: Option<TaskId>,
    /// Found started and closed as interrupted; they are among the above.
    pub interrupted: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Taken,
    Started,
    Finished,
    Told,
}

impl State {
    const fn step(&self) -> Step {
        match self {
            Self::Taken => Step::Taken,
            Self::Started(_) => Step::Started,
            Self::Finished { .. } => Step::Finished,
            Self::Told { .. } => Step::Told,
        }
    }
}

struct Entry {
    task_type: String,
    expires_at: DateTime<Utc>,
    step: Step,
}

pub struct Ledger<J> {
    journal: J,
    since: DateTime<Utc>,
    entries: Mutex<BTreeMap<TaskId, Entry>>,
}

impl<J: Journal> Ledger<J> {
    pub async fn open(journal: J, now: DateTime<Utc>) -> Result<Self, JournalError> {
        let since = journal.since(now).await?;
        let entry = |record: Record| {
            let step = record.state.step();
            (record.task_id, Entry { task_type: record.task_type, expires_at: record.expires_at, step })
        };
        let entries = journal.list().await?.into_iter().map(entry).collect();
        Ok(Self { journal, since, entries: Mutex::new(entries) })
    }

    /// Work from before this may have been done and forgotten.
    pub const fn since(&self) -> DateTime<Utc> {
        self.since
    }

    /// Closes what a former run of the agent left open. `rolled_back` says of a task that replaces the agent
    /// that the new program was given up.
    pub async fn recover(
        &self,
        facts: &Facts,
        rolled_back: impl Fn(TaskId) -> bool,
    ) -> Result<Recovered, JournalError> {
        let mut recovered = Recovered::default();
        let open: Vec<(TaskId, Step)> =
            self.entries.lock().await.iter().map(|(id, entry)| (*id, entry.step)).collect();
        for (id, step) in open {
            match step {
                // What stays of it in the journal is replaced when it comes again.
                Step::Taken => self.abandon(id).await,
                Step::Finished => recovered.untold.push(id),
                Step::Told => {}
                Step::Started => {
                    let Some(Record { state: State::Started(start), task_type, .. }) =
                        self.journal.get(id).await?
                    else {
                        continue;
                    };
                    match after_restart(&task_type, &start, facts, rolled_back(id)) {
                        None => recovered.awaits_proof = Some(id),
                        Some(ending) => {
                            recovered.interrupted += usize::from(matches!(ending, Ending::Failed { .. }));
                            let result = TaskResult { ending, phases: Vec::new() };
                            match self.finish(id, result.clone()).await {
                                Ok(()) => recovered.untold.push(id),
                                Err(_) => recovered.unwritten.push((id, result)),
                            }
                        }
                    }
                }
            }
        }
        Ok(recovered)
    }

    pub async fn see(&self, id: TaskId) -> Result<Seen, JournalError> {
        let step = self.entries.lock().await.get(&id).map(|entry| entry.step);
        Ok(match step {
            None => Seen::New,
            Some(Step::Taken | Step::Started) => Seen::Active,
            Some(Step::Finished | Step::Told) => Seen::Ended(Box::new(self.result(id).await?)),
        })
    }

    /// The recorded result of a task that has ended.
    pub async fn result(&self, id: TaskId) -> Result<TaskResult, JournalError> {
        match self.journal.get(id).await?.map(|record| record.state) {
            Some(State::Finished { result } | State::Told { result }) => Ok(result),
            _ => Err(JournalError::WrongStep),
        }
    }

    /// The task passed every check and is the node's from now on.
    pub async fn take(&self, task: &Task) -> Result<(), JournalError> {
        self.insert(task, State::Taken).await
    }

    /// The task was refused for what it says: it stays refused.
    pub async fn refuse(&self, task: &Task, result: TaskResult) -> Result<(), JournalError> {
        self.insert(task, State::Finished { result }).await
    }

    async fn insert(&self, task: &Task, state: State) -> Result<(), JournalError> {
        let mut entries = self.entries.lock().await;
        if entries.contains_key(&task.task_id) {
            return Err(JournalError::WrongStep);
        }
        if entries.len() >= MOST_RECORDS {
            return Err(JournalError::Full(entries.len()));
        }
        let (task_type, expires_at) = (task.task_type.clone(), task.expires_at);
        let step = state.step();
        let record = Record { task_id: task.task_id, task_type: task_type.clone(), expires_at, state };
        self.journal.put(record).await?;
        entries.insert(task.task_id, Entry { task_type, expires_at, step });
        Ok(())
    }

    /// From here on the task counts as begun, whatever happens. Must return before the first effect.
    pub async fn start(&self, id: TaskId, start: Start) -> Result<(), JournalError> {
        self.advance(id, &[Step::Taken], State::Started(start)).await
    }

    /// The task has ended so, for good: from any step before, because it may end without having begun.
    pub async fn finish(&self, id: TaskId, result: TaskResult) -> Result<(), JournalError> {
        self.advance(id, &[Step::Taken, Step::Started], State::Finished { result }).await
    }

    /// The control plane has the result.
    pub async fn mark_reported(&self, id: TaskId) -> Result<(), JournalError> {
        let result = self.result(id).await?;
        self.advance(id, &[Step::Finished, Step::Told], State::Told { result }).await
    }

    async fn advance(&self, id: TaskId, from: &[Step], state: State) -> Result<(), JournalError> {
        let mut entries = self.entries.lock().await;
        let entry = entries.get_mut(&id).filter(|entry| from.contains(&entry.step));
        let entry = entry.ok_or(JournalError::WrongStep)?;
        let step = state.step();
        let (task_type, expires_at) = (entry.task_type.clone(), entry.expires_at);
        self.journal.put(Record { task_id: id, task_type, expires_at, state }).await?;
        entry.step = step;
        Ok(())
    }

    /// Gives up a task that was not begun, as if it had never been handed over, also when the journal cannot be
    /// written: what may be left of the record is closed at the next start.
    pub async fn abandon(&self, id: TaskId) {
        self.entries.lock().await.remove(&id);
        let _ = self.journal.remove(id).await;
    }

    /// Forgets what was told and would be refused as expired if it came again. Gives how many.
    pub async fn sweep(&self, now: DateTime<Utc>) -> Result<usize, JournalError> {
        let mut entries = self.entries.lock().await;
        let old: Vec<TaskId> = entries
            .iter()
            .filter(|(_, entry)| {
                entry.step == Step::Told && entry.expires_at + CLOCK_TOLERANCE * 2 + KEPT_LONGER < now
            })
            .map(|(id, _)| *id)
            .collect();
        for id in &old {
            self.journal.remove(*id).await?;
            entries.remove(id);
        }
        Ok(old.len())
    }
}

/// What a start has to remember for [`after_restart`].
pub fn start_of(work: &Work, facts: &Facts, now: DateTime<Utc>) -> Start {
    let to_version = match work {
        Work::SelfUpdate(input) => Some(input.version.clone()),
        _ => None,
    };
    Start { at: now, boot_id: facts.boot_id.clone(), agent_version: facts.agent_version.clone(), to_version }
}

/// How a task that was found started has ended. `None` when it is still to be seen.
fn after_restart(task_type: &str, start: &Start, facts: &Facts, rolled_back: bool) -> Option<Ending> {
    let succeeded = |output: Result<serde_json::Value, serde_json::Error>| match output {
        Ok(output) => Ending::Succeeded { output },
        Err(error) => failed(FailureCode::Driver, error.to_string()),
    };
    let updated = |rolled_back| SelfUpdated {
        from_version: start.agent_version.clone(),
        to_version: start.to_version.clone().unwrap_or_default(),
        rolled_back,
    };
    match TaskType::parse(task_type) {
        Some(TaskType::Reboot) if start.boot_id != facts.boot_id => {
            Some(succeeded(serde_json::to_value(Rebooted {
                boot_id_before: start.boot_id.clone(),
                boot_id_after: facts.boot_id.clone(),
            })))
        }
        Some(TaskType::SelfUpdate) if rolled_back => Some(succeeded(serde_json::to_value(updated(true)))),
        Some(TaskType::SelfUpdate) if start.to_version.as_deref() == Some(&facts.agent_version) => None,
        _ => Some(failed(
            FailureCode::Interrupted,
            "the agent stopped while the task ran; how far it came is not known".to_owned(),
        )),
    }
}

/// The result of a task that replaced the agent by this one, which works.
pub fn updated_result(from_version: &str, to_version: &str) -> Result<TaskResult, serde_json::Error> {
    let output = serde_json::to_value(SelfUpdated {
        from_version: from_version.to_owned(),
        to_version: to_version.to_owned(),
        rolled_back: false,
    })?;
    Ok(TaskResult { ending: Ending::Succeeded { output }, phases: Vec::new() })
}

impl<J: Journal> Ledger<J> {
    /// This agent works: the task that brought it has succeeded.
    pub async fn finish_update(&self, id: TaskId) -> Result<(), JournalError> {
        let Some(Record { state: State::Started(start), .. }) = self.journal.get(id).await? else {
            return Err(JournalError::WrongStep);
        };
        let result = updated_result(&start.agent_version, start.to_version.as_deref().unwrap_or_default())
            .map_err(|_| JournalError::WrongStep)?;
        self.finish(id, result).await
    }
}

pub fn failed(code: FailureCode, message: String) -> Ending {
    Ending::Failed { failure: TaskFailure::new(code, message) }
}
