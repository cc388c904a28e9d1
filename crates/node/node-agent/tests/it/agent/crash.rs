//! Crashes at every step of the journal, and everything that can come between a task and its result.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use kernel::ids::TaskId;
use node_agent::journal::{FileJournal, Journal, JournalError, MemoryJournal, Record};
use node_proto::contract::{Ending, FailureCode};
use tokio::sync::Notify;

use super::node::{Doing, Node};

/// Stops for ever at one write: before it, or right after it.
#[derive(Clone)]
struct Crashing<J> {
    inner: J,
    left: Arc<AtomicUsize>,
    after: bool,
    reached: Arc<Notify>,
}

impl<J: Journal> Crashing<J> {
    async fn write(
        &self,
        write: impl Future<Output = Result<(), JournalError>> + Send,
    ) -> Result<(), JournalError> {
        if self.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return write.await;
        }
        if self.after {
            write.await.unwrap();
        }
        self.reached.notify_one();
        std::future::pending().await
    }
}

impl<J: Journal> Journal for Crashing<J> {
    async fn since(&self, now: DateTime<Utc>) -> Result<DateTime<Utc>, JournalError> {
        self.inner.since(now).await
    }
    async fn list(&self) -> Result<Vec<Record>, JournalError> {
        self.inner.list().await
    }
    async fn get(&self, id: TaskId) -> Result<Option<Record>, JournalError> {
        self.inner.get(id).await
    }
    async fn put(&self, record: Record) -> Result<(), JournalError> {
        self.write(self.inner.put(record)).await
    }
    async fn remove(&self, id: TaskId) -> Result<(), JournalError> {
        self.write(self.inner.remove(id)).await
    }
}

/// Taken, started, finished, told.
const WRITES: usize = 4;

async fn crash_at(write: usize, after: bool) {
    let node = Node::joined(Doing::fine()).await;
    let reached = Arc::new(Notify::new());
    let left = Arc::new(AtomicUsize::new(write));
    let journal = Crashing { inner: node.journal.clone(), left, after, reached: reached.clone() };
    let running = node.start_with(journal);
    let task = node.task(1);
    let id = task.task_id;
    node.gateway.reports_lock().sticky.push((id, node.sign(&task)));
    node.gateway.changed.notify_waiters();
    tokio::time::timeout(Duration::from_secs(60), reached.notified()).await.unwrap();
    running.crash().await;

    let begun = node.doing.count(id);
    let running = node.start();
    node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let told = node.gateway.reports_lock().results[&id].clone();
    assert!(told.iter().all(|result| *result == told[0]), "write {write} after={after}: {told:?}");
    assert!(node.doing.count(id) <= 1, "write {write} after={after}");
    match (write, after) {
        // Never begun: it is simply done later.
        (1, _) | (2, false) => assert!(matches!(told[0].ending, Ending::Succeeded { .. })),
        // Written as begun: interrupted, whether it had any effect or not.
        (2, true) | (3, false) => {
            assert!(
                matches!(&told[0].ending, Ending::Failed { failure } if failure.code == FailureCode::Interrupted)
            );
            assert_eq!(node.doing.count(id), begun);
        }
        _ => {
            assert!(matches!(told[0].ending, Ending::Succeeded { .. }));
            assert_eq!(node.doing.count(id), 1);
        }
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_of_the_journal_runs_a_task_at_most_once_and_tells_one_result() {
    for write in 1..=WRITES {
        for after in [false, true] {
            crash_at(write, after).await;
        }
    }
}

#[tokio::test]
async fn a_journal_in_files_survives_and_refuses_what_it_cannot_read() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::joined(Doing::fine()).await;
    let running = node.start_with(FileJournal::open(dir.path()).unwrap());
    let id = node.queue(&node.task(1));
    node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    running.stop().await;
    let journal = FileJournal::open(dir.path()).unwrap();
    assert_eq!(journal.list().await.unwrap().len(), 1);
    let since = journal.since(DateTime::UNIX_EPOCH).await.unwrap();
    assert!(since > DateTime::UNIX_EPOCH);
    // A new agent on the same files answers from them.
    let running = node.start_with(journal);
    node.queue(&node.task(1));
    node.gateway.until("the same again", |told| told.results[&id].len() == 2).await;
    assert_eq!(node.doing.count(id), 1);
    running.stop().await;
    let path = dir.path().join("tasks").join(format!("{id}.json"));
    std::fs::write(&path, "{").unwrap();
    assert!(node.start_with(FileJournal::open(dir.path()).unwrap()).ended.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn results_from_before_a_crash_are_told_after_it() {
    let node = Node::joined(Doing::fine()).await;
    node.gateway.reports_lock().busy_results = u32::MAX;
    let running = node.start();
    let ids: Vec<TaskId> = (1..=5).map(|n| node.queue(&node.task(n))).collect();
    node.gateway.until("all done", |_| ids.iter().all(|id| node.doing.count(*id) == 1)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.crash().await;
    node.gateway.reports_lock().busy_results = 0;
    let running = node.start();
    node.gateway.until("all told", |told| told.results.len() == 5).await;
    assert_eq!(node.doing.started.lock().unwrap().len(), 5);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_was_lost_runs_nothing_from_before_it() {
    let mut node = Node::joined(Doing::fine()).await;
    let running = node.start();
    let task = node.task(1);
    let id = node.queue(&task);
    node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    running.crash().await;
    tokio::time::sleep(Duration::from_secs(601)).await;
    node.journal = MemoryJournal::default();
    let running = node.start();
    node.queue(&task);
    node.gateway.until("the refusal", |told| told.results[&id].len() == 2).await;
    assert_eq!(node.doing.count(id), 1);
    running.stop().await;
}
