//! A simulated node's journal: one file to which lines are added, an index in memory, and the faults of disks
//! and power. The file survives the end of this process, however sudden; like a simulated node's identity it is
//! not forced to the disk.
//!
//! Faults: the disk is full for a while, and the write that finds out may have happened all the same; the agent
//! dies right before or right after a write.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use kernel::ids::TaskId;
use node_agent::journal::{Journal, JournalError, Record, State};
use node_proto::contract::Ending;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    dice::{Dice, Purpose},
    node::Crash,
    plan::{Nature, Plan},
    report::Counters,
};

const LARGEST_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// The index of the file. It outlives the agent, as the file does.
pub struct JournalFile {
    path: PathBuf,
    plan: Arc<Plan>,
    nature: Nature,
    dice: Dice,
    counters: Arc<Counters>,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    since: Option<DateTime<Utc>>,
    lines: BTreeMap<TaskId, (u64, u32)>,
    end: u64,
    full_until: Option<Instant>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Since(DateTime<Utc>),
    Put(Record),
    Removed(TaskId),
}

impl JournalFile {
    pub fn open(
        path: PathBuf,
        plan: Arc<Plan>,
        nature: Nature,
        node: u64,
        counters: Arc<Counters>,
    ) -> Result<Self, JournalError> {
        let dice = Dice::new(plan.seed, node, Purpose::Journal);
        let index = Mutex::new(read(&path)?);
        Ok(Self { path, plan, nature, dice, counters, index })
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: io::Error) -> JournalError {
        JournalError::Io { path: self.path.clone(), error }
    }

    /// Adds a line; gives where it is.
    fn add(&self, index: &mut Index, line: &Line) -> Result<(u64, u32), JournalError> {
        let mut bytes = serde_json::to_vec(line).map_err(|error| self.failed(error.into()))?;
        let length =
            u32::try_from(bytes.len()).map_err(|_| self.failed(io::ErrorKind::FileTooLarge.into()))?;
        bytes.push(b'\n');
        let mut options = std::fs::OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(&self.path);
        file.and_then(|mut file| file.write_all(&bytes)).map_err(|error| self.failed(error))?;
        let place = (index.end, length);
        index.end += bytes.len() as u64;
        Ok(place)
    }

    fn write(&self, line: &Line) -> Result<(), JournalError> {
        let mut index = self.lock();
        let now = Instant::now();
        let full = || self.failed(io::ErrorKind::StorageFull.into());
        if index.full_until.is_some_and(|until| now < until) {
            return Err(full());
        }
        let fills = self.dice.falls(self.nature.faults.disk_full);
        let written_all_the_same = fills && self.dice.below(2) == 0;
        if fills {
            self.counters.fault_disk_full.add();
            index.full_until = Some(now + Duration::from_millis(self.plan.extents.disk_full_ms));
        }
        if !fills || written_all_the_same {
            let place = self.add(&mut index, line)?;
            match line {
                Line::Since(since) => index.since = Some(*since),
                Line::Put(record) => {
                    index.lines.insert(record.task_id, place);
                }
                Line::Removed(id) => {
                    index.lines.remove(id);
                }
            }
        }
        if fills { Err(full()) } else { Ok(()) }
    }

    fn record(&self, (place, length): (u64, u32)) -> Result<Record, JournalError> {
        let mut bytes = vec![0; length as usize];
        let file = std::fs::File::open(&self.path);
        file.and_then(|file| file.read_exact_at(&mut bytes, place)).map_err(|error| self.failed(error))?;
        match serde_json::from_slice(&bytes) {
            Ok(Line::Put(record)) => Ok(record),
            Ok(_) => Err(unreadable(&self.path, "it is not a record")),
            Err(error) => Err(unreadable(&self.path, &error.to_string())),
        }
    }
}

fn unreadable(path: &Path, problem: &str) -> JournalError {
    JournalError::Unreadable { path: path.into(), problem: problem.to_owned() }
}

/// A last line that is not whole was being written when the process ended: it does not count, and is cut off.
fn read(path: &Path) -> Result<Index, JournalError> {
    let failed = |error| JournalError::Io { path: path.into(), error };
    let bytes = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Index::default()),
        Err(error) => return Err(failed(error)),
        Ok(meta) if meta.len() > LARGEST_FILE_BYTES => {
            return Err(unreadable(path, "it is larger than 256 MiB"));
        }
        Ok(_) => std::fs::read(path).map_err(failed)?,
    };
    let mut index = Index::default();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(text) = line.strip_suffix(b"\n") else {
            let file = std::fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
            file.set_len(index.end).map_err(failed)?;
            break;
        };
        let place = (index.end, u32::try_from(text.len()).unwrap_or(u32::MAX));
        match serde_json::from_slice(text).map_err(|error| unreadable(path, &error.to_string()))? {
            Line::Since(since) => index.since = Some(since),
            Line::Put(record) => {
                index.lines.insert(record.task_id, place);
            }
            Line::Removed(id) => {
                index.lines.remove(&id);
            }
        }
        index.end += line.len() as u64;
    }
    Ok(index)
}

/// The journal of one run of the agent: it dies with it.
pub struct SimJournal {
    pub file: Arc<JournalFile>,
    pub crash: Crash,
}

impl SimJournal {
    async fn write(&self, line: Line) -> Result<(), JournalError> {
        let file = &self.file;
        self.crash.survived().await;
        let dies = file.dice.falls(file.nature.faults.crash);
        if dies {
            file.counters.fault_crash.add();
        }
        if dies && file.dice.below(2) == 0 {
            self.crash.now().await;
        }
        let outcome = file.write(&line);
        if dies {
            self.crash.now().await;
        }
        if let (Ok(()), Line::Put(record)) = (&outcome, &line) {
            self.count(&record.state);
        }
        outcome
    }

    fn count(&self, state: &State) {
        let counters = &self.file.counters;
        match state {
            State::Finished { result } => match result.ending {
                Ending::Succeeded { .. } => counters.tasks_succeeded.add(),
                Ending::Failed { .. } => counters.tasks_failed.add(),
                Ending::Refused { .. } => counters.tasks_refused.add(),
            },
            State::Told { .. } => counters.results_told.add(),
            State::Taken | State::Started(_) => {}
        }
    }
}

impl Journal for SimJournal {
    async fn since(&self, now: DateTime<Utc>) -> Result<DateTime<Utc>, JournalError> {
        let mut index = self.file.lock();
        if let Some(since) = index.since {
            return Ok(since);
        }
        self.file.add(&mut index, &Line::Since(now))?;
        index.since = Some(now);
        Ok(now)
    }

    async fn list(&self) -> Result<Vec<Record>, JournalError> {
        let places: Vec<(u64, u32)> = self.file.lock().lines.values().copied().collect();
        places.into_iter().map(|place| self.file.record(place)).collect()
    }

    async fn get(&self, id: TaskId) -> Result<Option<Record>, JournalError> {
        let place = self.file.lock().lines.get(&id).copied();
        place.map(|place| self.file.record(place)).transpose()
    }

    async fn put(&self, record: Record) -> Result<(), JournalError> {
        self.write(Line::Put(record)).await
    }

    async fn remove(&self, id: TaskId) -> Result<(), JournalError> {
        self.write(Line::Removed(id)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Extents, Faults};

    fn journal(path: &Path, plan: Plan) -> SimJournal {
        let plan = Arc::new(plan);
        let nature = plan.nature("sim", 1);
        let file = JournalFile::open(path.to_owned(), plan, nature, 1, Arc::default()).unwrap();
        SimJournal { file: Arc::new(file), crash: Crash::default() }
    }

    fn record(state: State) -> Record {
        let ambient = kernel::Ambient::system();
        Record {
            task_id: ambient.id(),
            task_type: "diag.collect".to_owned(),
            expires_at: ambient.now(),
            state,
        }
    }

    #[tokio::test]
    async fn records_survive_and_half_a_line_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let (kept, gone) = (record(State::Taken), record(State::Taken));
        let first = journal(&path, Plan::default());
        let since = first.since(kernel::Ambient::system().now()).await.unwrap();
        for record in [&kept, &gone] {
            first.put(record.clone()).await.unwrap();
        }
        first.remove(gone.task_id).await.unwrap();
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"put\":{\"task").unwrap();
        for _ in 0..2 {
            let again = journal(&path, Plan::default());
            assert_eq!(again.since(kernel::Ambient::system().now()).await.unwrap(), since);
            assert_eq!(again.list().await.unwrap(), std::slice::from_ref(&kept));
            assert_eq!(again.get(gone.task_id).await.unwrap(), None);
            again.put(kept.clone()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_full_disk_refuses_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let faults = Faults { disk_full: 0.5, ..Faults::default() };
        let refused = async |disk_full_ms, name: &str| {
            let extents = Extents { disk_full_ms, ..Extents::default() };
            let journal = journal(&dir.path().join(name), Plan { faults, extents, ..Plan::default() });
            let mut refused = 0;
            for _ in 0..200 {
                refused += u32::from(journal.put(record(State::Taken)).await.is_err());
            }
            refused
        };
        let (short, long) = (refused(0, "short").await, refused(600_000, "long").await);
        assert!((60..140).contains(&short) && long > 190, "{short} {long}");
    }
}
