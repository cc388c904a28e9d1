//! Waiting for tasks.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use kernel::ids::TaskId;
use node_proto::{
    TaskType,
    contract::{WAIT_SECONDS, WAIT_TASKS, WaitQuery, Waited},
};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Session, intake::Next, lock};
use crate::{
    executor::Executor,
    journal::{Journal, Recovered},
    transport::{Backoff, Connect},
};

/// After an empty response that came sooner than this, the next request is delayed.
const TOO_SOON: Duration = Duration::from_millis(500);

impl<C: Connect, J: Journal, E: Executor> Session<C, J, E> {
    /// Ends some time after `cancel`, when what runs has ended or its time is up.
    pub(super) async fn work(self: &Arc<Self>, found: Recovered, cancel: &CancellationToken) {
        let mut flows = JoinSet::new();
        for task in found.untold {
            if self.lease_add(task, None) {
                flows.spawn(self.clone().report_recorded(task));
            }
        }
        for (task, result) in found.unwritten {
            if self.lease_add(task, None) {
                flows.spawn(self.clone().record_and_report(task, result));
            }
        }
        tokio::select! {
            () = self.wait_for_tasks(&mut flows) => {}
            () = self.report_proved_update() => {}
            () = cancel.cancelled() => {}
        }
        self.stopping.store(true, Ordering::Relaxed);
        let _ = tokio::time::timeout(self.settings.grace, self.wait_until_idle(&mut flows)).await;
    }

    async fn wait_for_tasks(self: &Arc<Self>, flows: &mut JoinSet<()>) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        // An older gateway gives a node without room one task all the same. With each new connection there may be a newer one.
        let mut connections = self.client.connections();
        let mut always_gives_one_over = None;
        loop {
            self.reap(flows);
            let holding: Vec<TaskId> = lock(&self.leased).keys().copied().collect();
            let room = self.settings.max_leased.saturating_sub(holding.len());
            let connection = *connections.borrow_and_update();
            if room == 0 && always_gives_one_over == Some(connection) {
                tokio::select! {
                    () = self.leased_changed.notified() => {}
                    _ = connections.changed() => {}
                }
                continue;
            }
            let query = WaitQuery {
                seconds: Some(WAIT_SECONDS),
                room: Some(u32::try_from(room).unwrap_or(WAIT_TASKS).min(WAIT_TASKS)),
                holding: Some(WaitQuery::holding(&holding)),
            };
            let asked = Instant::now();
            // Without room the node waits all the same: only a node that waits can be told to dial a gateway.
            let waited = tokio::select! {
                waited = Box::pin(self.client.wait(&query)) => waited,
                () = self.leased_changed.notified(), if room == 0 => continue,
            };
            match waited {
                Ok(Waited { tasks, renew_now, dial }) => {
                    backoff.succeeded();
                    if renew_now == Some(true) {
                        self.renew_asked.notify_one();
                    }
                    let mut fresh = dial.is_some_and(|dial| self.dial(dial));
                    if room == 0 && !tasks.is_empty() {
                        always_gives_one_over = Some(connection);
                    }
                    for signed in tasks.iter().take(room.max(1)) {
                        let next = Box::pin(self.intake(signed)).await;
                        fresh |= self.follow(next, flows);
                    }
                    if !fresh && asked.elapsed() < TOO_SOON {
                        tokio::time::sleep(TOO_SOON).await;
                    }
                }
                Err(error) => {
                    self.note_error("waiting for tasks", &error);
                    let pause = error.retry_after().unwrap_or(Duration::ZERO);
                    tokio::time::sleep(backoff.failed(&self.ambient).max(pause)).await;
                }
            }
        }
    }

    /// False when nothing came of it.
    fn follow(self: &Arc<Self>, next: Next, flows: &mut JoinSet<()>) -> bool {
        let this = self.clone();
        match next {
            Next::Run(task, work) => {
                self.lease_add(task.task_id, Some(work.kind()));
                // Here, not in its own course: the order in which they came counts.
                let turn = work.owner().map(|owner| self.turns.queue_for(owner));
                flows.spawn(this.follow_task(task, work, turn));
            }
            Next::ReportRecorded(task) if self.lease_add(task, None) => {
                flows.spawn(this.report_recorded(task));
            }
            Next::Report(task, result) if self.lease_add(task, None) => {
                flows.spawn(this.report_unrecorded(task, result));
            }
            _ => return false,
        }
        true
    }

    fn reap(&self, flows: &mut JoinSet<()>) {
        while let Some(ended) = flows.try_join_next() {
            if let Err(error) = ended {
                self.log.error("tasks", &format!("a task's course broke down: {error}"));
            }
        }
    }

    /// Until nothing runs but what ends with the agent itself.
    async fn wait_until_idle(&self, flows: &mut JoinSet<()>) {
        loop {
            let ends_with_us =
                |kind: &Option<TaskType>| matches!(kind, Some(TaskType::SelfUpdate | TaskType::Reboot));
            if lock(&self.leased).values().all(ends_with_us) || flows.join_next().await.is_none() {
                return;
            }
        }
    }

    /// Tells of the task that brought this program, once it has proved to work.
    async fn report_proved_update(self: &Arc<Self>) {
        loop {
            self.proved.notified().await;
            let Some(task) = lock(&self.awaits_proof).take() else { continue };
            match self.ledger.finish_update(task).await {
                Ok(()) => self.clone().report_recorded(task).await,
                Err(error) => {
                    self.log.error("journal", &format!("{task}: {error}"));
                    self.release(task);
                }
            }
        }
    }
}
