//! A journal in memory, for simulated nodes. Clones share, so that it survives a simulated crash.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use chrono::{DateTime, Utc};
use kernel::ids::TaskId;

use super::{Journal, JournalError, Record};

#[derive(Clone, Default)]
pub struct MemoryJournal(Arc<Mutex<Memory>>);

#[derive(Default)]
struct Memory {
    since: Option<DateTime<Utc>>,
    records: BTreeMap<TaskId, Record>,
    full_disk: bool,
}

impl MemoryJournal {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// While true, nothing can be written, as on a full disk.
    pub fn set_full_disk(&self, full: bool) {
        self.lock().full_disk = full;
    }

    pub fn records(&self) -> Vec<Record> {
        self.lock().records.values().cloned().collect()
    }

    fn write(&self, change: impl FnOnce(&mut Memory)) -> Result<(), JournalError> {
        let mut memory = self.lock();
        if memory.full_disk {
            let error = io::Error::from(io::ErrorKind::StorageFull);
            return Err(JournalError::Io { path: "memory".into(), error });
        }
        change(&mut memory);
        Ok(())
    }
}

impl Journal for MemoryJournal {
    async fn since(&self, now: DateTime<Utc>) -> Result<DateTime<Utc>, JournalError> {
        Ok(*self.lock().since.get_or_insert(now))
    }

    async fn list(&self) -> Result<Vec<Record>, JournalError> {
        Ok(self.records())
    }

    async fn get(&self, id: TaskId) -> Result<Option<Record>, JournalError> {
        Ok(self.lock().records.get(&id).cloned())
    }

    async fn put(&self, record: Record) -> Result<(), JournalError> {
        self.write(|memory| {
            memory.records.insert(record.task_id, record);
        })
    }

    async fn remove(&self, id: TaskId) -> Result<(), JournalError> {
        self.write(|memory| {
            memory.records.remove(&id);
        })
    }
}
