//! The end of a node's task wakes the step that waits for it, in the transaction that stores the end.

use async_trait::async_trait;
use fleet::api::{CompletedTask, Completion, TaskEnding, Waiter};
use kernel::{Failure, ids::TaskId};
use node_proto::contract::Phase;
use pg::WriteTx;
use serde::{Deserialize, Serialize};

/// What a step is woken with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskOver {
    pub task_id: TaskId,
    pub ending: TaskEnding,
    #[serde(default)]
    pub phases: Vec<Phase>,
}

pub struct WakesSteps;

#[async_trait]
impl Completion for WakesSteps {
    fn waiter(&self) -> Waiter {
        Waiter::SagaStep
    }

    /// A step that went on without the answer is not woken: the key is stale.
    async fn completed(&self, tx: &mut WriteTx, task: &CompletedTask) -> Result<(), Failure> {
        let over = TaskOver { task_id: task.id, ending: task.ending.clone(), phases: task.phases.clone() };
        saga::wake(tx, &task.key, serde_json::to_value(over)?).await?;
        Ok(())
    }
}
