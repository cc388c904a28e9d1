//! Work that its party wants no more: what a node has not begun it never gets.

use kernel::{
    Code, Failure,
    ids::{NodeId, TaskId},
};
use pg::WriteTx;

use super::{completion::Waiter, dispatch};
use crate::{Fleet, store};

/// More open tasks than this no party has at a node.
const MOST: i64 = 100;

impl Fleet {
    /// Ends the open tasks at `node` whose waiting party is of this kind and has a key that begins so. What the node
    /// has begun it may finish; whatever is queued later about the same owner comes after that.
    pub async fn tasks_withdraw(
        &self,
        tx: &mut WriteTx,
        node: NodeId,
        waiter: Waiter,
        key_prefix: &str,
    ) -> Result<Vec<TaskId>, Failure> {
        let open = store::dispatch::open_of(tx.conn(), node, waiter.name(), key_prefix, MOST).await?;
        let mut withdrawn = Vec::with_capacity(open.len());
        for task in open {
            match dispatch::cancel(self, tx, task, None).await {
                Ok(_) => withdrawn.push(task),
                // It ended in this moment.
                Err(Failure::Problem(problem)) if problem.code == Code::InvalidTransition => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(withdrawn)
    }
}
