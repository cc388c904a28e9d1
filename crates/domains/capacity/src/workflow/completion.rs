//! The end of a node's task wakes the step that waits for it, in the transaction that stores the end.

use async_trait::async_trait;
use fleet::api::{CompletedTask, Completion, TaskEnding};
use kernel::{Failure, ids::TaskId};
use node_proto::contract::{Ending, Phase};
use pg::WriteTx;
use serde::{Deserialize, Serialize};

/// The waiting kind of tasks that a step waits for.
pub const WAITING_KIND: &str = "saga";

/// What a step is woken with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskOver {
    pub task_id: TaskId,
    pub ending: Told,
    #[serde(default)]
    pub phases: Vec<Phase>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// By the node.
    Node(Ending),
    Expired,
    Cancelled,
    Rejected,
}

pub struct WakesSteps;

#[async_trait]
impl Completion for WakesSteps {
    fn kind(&self) -> &'static str {
        WAITING_KIND
    }

    /// A step that went on without the answer is not woken: the key is stale.
    async fn completed(&self, tx: &mut WriteTx, task: &CompletedTask) -> Result<(), Failure> {
        let ending = match &task.ending {
            TaskEnding::Told(ending) => Told::Node(ending.clone()),
            TaskEnding::Expired => Told::Expired,
            TaskEnding::Cancelled => Told::Cancelled,
            TaskEnding::Rejected => Told::Rejected,
        };
        let over = TaskOver { task_id: task.id, ending, phases: task.phases.clone() };
        saga::wake(tx, &task.key, serde_json::to_value(over)?).await?;
        Ok(())
    }
}
