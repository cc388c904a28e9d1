//! Whoever waits for a task is told in the transaction that stores its end.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::{
    Failure,
    ids::{NodeId, TaskId},
};
use node_proto::contract::{Ending, Phase};
use pg::WriteTx;

/// How it came to an end.
#[derive(Clone, Debug)]
pub enum TaskEnding {
    /// The node told.
    Told(Ending),
    /// Nobody told in time.
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
    /// The `kind` of [`super::tasks::Waiting`].
    fn kind(&self) -> &'static str;
    async fn completed(&self, tx: &mut WriteTx, task: &CompletedTask) -> Result<(), Failure>;
}

#[derive(Default)]
pub struct Completions(Vec<Arc<dyn Completion>>);

impl Completions {
    pub fn new(parties: Vec<Arc<dyn Completion>>) -> Self {
        Self(parties)
    }

    /// Tells the party of this kind. A kind that nobody answers to is a mistake in the wiring: it is logged,
    /// and the result is stored all the same.
    pub async fn tell(&self, tx: &mut WriteTx, kind: &str, task: &CompletedTask) -> Result<(), Failure> {
        match self.0.iter().find(|party| party.kind() == kind) {
            Some(party) => party.completed(tx, task).await,
            None => {
                tracing::error!(kind, task_id = %task.id, "nobody waits for tasks of this kind");
                Ok(())
            }
        }
    }
}
