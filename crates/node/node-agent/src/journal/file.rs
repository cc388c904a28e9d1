//! A journal in files: `tasks/<task_id>.json` below the state directory, one per task, each replaced as a whole
//! and flushed before it counts. Writing happens off the event loop: a slow disk delays tasks, not heartbeats.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use kernel::ids::TaskId;
use node_proto::contract::{Ending, TaskResult};
use serde::{Deserialize, Serialize};

use super::{Journal, JournalError, Record, State};
use crate::atomic;

const BEGAN: &str = "journal.json";
const TASKS: &str = "tasks";
/// A result has at most 1 MiB.
const LARGEST_RECORD: u64 = 4 * 1024 * 1024;

#[derive(Clone)]
pub struct FileJournal {
    dir: Arc<Path>,
}

#[derive(Serialize, Deserialize)]
struct Began {
    since: DateTime<Utc>,
}

impl FileJournal {
    /// Below a state directory that is there already.
    pub fn open(state_dir: &Path) -> Result<Self, JournalError> {
        let tasks = state_dir.join(TASKS);
        atomic::private_dir(&tasks).map_err(|error| JournalError::Io { path: tasks, error })?;
        Ok(Self { dir: state_dir.into() })
    }

    fn path(&self, id: TaskId) -> PathBuf {
        self.dir.join(TASKS).join(format!("{id}.json"))
    }

    async fn off_loop<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || work(&this)).await.unwrap_or(Err(JournalError::Stopped))
    }

    fn read(path: &Path) -> Result<Option<Record>, JournalError> {
        let bytes = atomic::read(path, LARGEST_RECORD)
            .map_err(|error| JournalError::Io { path: path.into(), error })?;
        let unreadable = |problem: String| JournalError::Unreadable { path: path.into(), problem };
        let Some(bytes) = bytes else { return Ok(None) };
        let record: Record = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        let named = path.file_stem().and_then(|stem| stem.to_str()) == Some(&record.task_id.to_string());
        if named { Ok(Some(record)) } else { Err(unreadable("it is about another task".to_owned())) }
    }

    fn since_now(&self, now: DateTime<Utc>) -> Result<DateTime<Utc>, JournalError> {
        let path = self.dir.join(BEGAN);
        let io = |error| JournalError::Io { path: path.clone(), error };
        if let Some(bytes) = atomic::read(&path, LARGEST_RECORD).map_err(io)? {
            let began: Began = serde_json::from_slice(&bytes).map_err(|error| JournalError::Unreadable {
                path: path.clone(),
                problem: error.to_string(),
            })?;
            return Ok(began.since);
        }
        let text = serde_json::to_vec(&Began { since: now }).map_err(|error| io(error.into()))?;
        atomic::write(&path, &text).map_err(io)?;
        Ok(now)
    }

    /// A file that cannot be read stops the agent: forgetting it could mean running a task twice.
    fn list_now(&self) -> Result<Vec<Record>, JournalError> {
        let dir = self.dir.join(TASKS);
        let failed = |error: io::Error| JournalError::Io { path: dir.clone(), error };
        let mut records = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                records.extend(Self::read(&path)?.map(without_told_result));
            }
        }
        Ok(records)
    }
}

fn without_told_result(mut record: Record) -> Record {
    if matches!(record.state, State::Told { .. }) {
        let ending = Ending::Succeeded { output: serde_json::Value::Null };
        record.state = State::Told { result: TaskResult { ending, phases: Vec::new() } };
    }
    record
}

impl Journal for FileJournal {
    async fn since(&self, now: DateTime<Utc>) -> Result<DateTime<Utc>, JournalError> {
        self.off_loop(move |this| this.since_now(now)).await
    }

    async fn list(&self) -> Result<Vec<Record>, JournalError> {
        self.off_loop(Self::list_now).await
    }

    async fn get(&self, id: TaskId) -> Result<Option<Record>, JournalError> {
        self.off_loop(move |this| Self::read(&this.path(id))).await
    }

    async fn put(&self, record: Record) -> Result<(), JournalError> {
        self.off_loop(move |this| {
            let path = this.path(record.task_id);
            let io = |error| JournalError::Io { path: path.clone(), error };
            let bytes = serde_json::to_vec(&record).map_err(|error| io(error.into()))?;
            atomic::write(&path, &bytes).map_err(io)
        })
        .await
    }

    async fn remove(&self, id: TaskId) -> Result<(), JournalError> {
        self.off_loop(move |this| {
            let path = this.path(id);
            atomic::remove(&path).map_err(|error| JournalError::Io { path, error })
        })
        .await
    }
}
