//! What the node has taken over, begun, finished and told: the reason why a task runs at most once.
//!
//! One record per task. It is written as *taken* when the task passed every check, as *started* before the
//! first effect, as *finished* with the result before the result is told, and as *told* once the control plane
//! has it. A crash between any two leaves a record that says what may be done next:
//!
//! | found after a crash | what it means | what happens |
//! | --- | --- | --- |
//! | nothing, or taken | no effect | forgotten; the control plane hands it out again |
//! | started | effects unknown | reported as interrupted, never run again |
//! | finished | done | the result is told |
//! | told | done and known | kept, in case somebody asks again |
//!
//! A record is forgotten only when the task has expired for so long that no check would let it pass again.
//! When the journal is full of younger ones, new work is refused instead.

mod file;
mod ledger;
mod memory;

use std::{future::Future, io, path::PathBuf};

use chrono::{DateTime, Utc};
use kernel::ids::TaskId;
use node_proto::contract::TaskResult;
use serde::{Deserialize, Serialize};

pub use file::FileJournal;
pub use ledger::{Ledger, MOST_RECORDS, Recovered, Seen, failed, start_of};
pub use memory::MemoryJournal;

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the journal cannot be written: {path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("{path} is not a record of this journal: {problem}; move it away and look at what it was")]
    Unreadable { path: PathBuf, problem: String },
    #[error("the journal is full: {0} tasks that have not expired long enough")]
    Full(usize),
    #[error("the journal has no such task, or it is not where this step begins")]
    WrongStep,
    #[error("the journal's writer has stopped")]
    Stopped,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub task_id: TaskId,
    pub task_type: String,
    pub expires_at: DateTime<Utc>,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    Taken,
    Started(Start),
    Finished { result: TaskResult },
    Told { result: TaskResult },
}

/// What must be known of a start, to judge after a restart what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub at: DateTime<Utc>,
    pub boot_id: String,
    pub agent_version: String,
    /// Of a task that replaces the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_version: Option<String>,
}

/// Where records are. Writing is durable when it returns without an error; after an error, the record is as
/// it was before or as it was to be.
pub trait Journal: Send + Sync + 'static {
    /// When this journal began: kept from the first call on, which is told the time.
    fn since(&self, now: DateTime<Utc>) -> impl Future<Output = Result<DateTime<Utc>, JournalError>> + Send;
    /// All records. What was told may come without its result, so that a long history needs little memory.
    fn list(&self) -> impl Future<Output = Result<Vec<Record>, JournalError>> + Send;
    fn get(&self, id: TaskId) -> impl Future<Output = Result<Option<Record>, JournalError>> + Send;
    fn put(&self, record: Record) -> impl Future<Output = Result<(), JournalError>> + Send;
    fn remove(&self, id: TaskId) -> impl Future<Output = Result<(), JournalError>> + Send;
}
