//! Looks of many nodes at once: whoever asks joins the next statement.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kernel::{Code, Problem, ids::NodeId};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Fleet,
    service::dispatch::{self, Ask, LeasedTask},
};

/// Nodes of one statement, statements at once, and nodes that may wait for their turn.
const BATCH: usize = 256;
const WORKERS: usize = 2;
const QUEUE: usize = 32_768;
const PATIENCE: Duration = Duration::from_secs(10);

type Answer = Result<Vec<LeasedTask>, Problem>;

struct Asked {
    ask: Ask,
    answer: oneshot::Sender<Answer>,
}

pub struct TaskLeases(mpsc::Sender<Asked>);

impl TaskLeases {
    pub fn start(fleet: &Fleet, workers: &TaskTracker, stop: &CancellationToken) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..WORKERS {
            let work = work(fleet.clone(), receiver.clone());
            workers.spawn(stop.clone().run_until_cancelled_owned(work));
        }
        Self(sender)
    }

    /// What waits for this node, leased.
    pub async fn ask(&self, ask: Ask) -> Answer {
        let busy = || Problem::from_code(Code::ServiceUnavailable).retry_after(1);
        let (answer, answered) = oneshot::channel();
        self.0.try_send(Asked { ask, answer }).map_err(|_| busy())?;
        answered.await.map_err(|_| busy())?
    }
}

async fn work(fleet: Fleet, queue: Arc<Mutex<mpsc::Receiver<Asked>>>) {
    loop {
        let mut batch = Vec::new();
        if queue.lock().await.recv_many(&mut batch, BATCH).await == 0 {
            return;
        }
        // Of two that ask for the same node the later one is there still.
        let mut asked: HashMap<NodeId, Asked> = HashMap::with_capacity(batch.len());
        for one in batch {
            if let Some(before) = asked.insert(one.ask.node, one) {
                let _ = before.answer.send(Ok(Vec::new()));
            }
        }
        asked.retain(|_, one| !one.answer.is_closed());
        let asks: Vec<Ask> = asked.values().map(|one| one.ask.clone()).collect();
        if asks.is_empty() {
            continue;
        }
        let leased = match tokio::time::timeout(PATIENCE, dispatch::tasks_lease(&fleet, &asks)).await {
            Ok(Ok(leased)) => leased,
            failed => {
                match failed {
                    Ok(Err(failure)) => tracing::warn!(error = ?failure, "tasks could not be leased"),
                    _ => tracing::warn!("leasing tasks timed out"),
                }
                for one in asked.into_values() {
                    let _ = one.answer.send(Err(Problem::from_code(Code::ServiceUnavailable).retry_after(1)));
                }
                continue;
            }
        };
        let mut by_node: HashMap<NodeId, Vec<LeasedTask>> = HashMap::new();
        for task in leased {
            by_node.entry(task.node_id).or_default().push(task);
        }
        let mut left: Vec<LeasedTask> = Vec::new();
        for (node, one) in asked {
            let tasks = by_node.remove(&node).unwrap_or_default();
            if let Err(Ok(tasks)) = one.answer.send(Ok(tasks)) {
                left.extend(tasks);
            }
        }
        if !left.is_empty()
            && let Err(failure) = dispatch::put_back(&fleet, &left).await
        {
            tracing::warn!(error = ?failure, "tasks of disconnected nodes could not be requeued; their leases will expire");
        }
    }
}
