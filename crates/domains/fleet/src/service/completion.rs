//! Whoever waits for a task is told in the transaction that stores its end.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::{
    Failure,
    ids::{NodeId, TaskId},
};
use node_proto::contract::{Ending, Phase};
use pg::WriteTx;
use serde::{Deserialize, Serialize};

pub use crate::model::waiter::Waiter;

/// How a task ended, as the control plane knows it: the node's own account, or why there is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnding {
    /// The node reported it.
    #[serde(rename = "node")]
    Reported(Ending),
    /// Nobody reported in time.
    Expired,
    Cancelled,
    /// It never left: the row was not what a signer had signed.
    Rejected,
}

#[derive(Clone, Debug)]
pub struct CompletedTask {
    pub id: TaskId,
    pub node_id: NodeId,
    pub task_type: String,
    /// What the waiting party gave when it queued the task.
    pub key: String,
    pub ending: TaskEnding,
    /// What the node did, step by step, when it told with the end.
    pub phases: Vec<Phase>,
}

/// A party that waits for tasks. An error rolls the result back, and the node tells it again.
#[async_trait]
pub trait Completion: Send + Sync {
    fn waiter(&self) -> Waiter;
    async fn completed(&self, tx: &mut WriteTx, task: &CompletedTask) -> Result<(), Failure>;
}

#[derive(Default)]
pub struct Completions(Vec<Arc<dyn Completion>>);

impl Completions {
    pub fn new(parties: Vec<Arc<dyn Completion>>) -> Self {
        Self(parties)
    }

    /// Whether each waiter has exactly one party; names the first that has not.
    pub fn check(&self) -> Result<(), Waiter> {
        let answers = |waiter: Waiter| self.0.iter().filter(|party| party.waiter() == waiter).count();
        Waiter::ALL.into_iter().find(|waiter| answers(*waiter) != 1).map_or(Ok(()), Err)
    }

    /// Notifies whoever waits, by the name that the task's row holds. [`Self::check`] proved at start-up that every waiter
    /// of this release has its party, so another name was written by another release: nothing is stored, the bug is
    /// counted, and the node reports again until a process that knows the waiter takes the result.
    pub async fn notify(&self, tx: &mut WriteTx, waiter: &str, task: &CompletedTask) -> Result<(), Failure> {
        let known = waiter.parse::<Waiter>().ok();
        match self.0.iter().find(|party| Some(party.waiter()) == known) {
            Some(party) => party.completed(tx, task).await,
            None => {
                Err(Failure::bug(format!("{} ended, but its waiter {waiter} is not registered", task.id)))
            }
        }
    }
}
