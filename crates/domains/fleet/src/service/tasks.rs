//! Queueing work: signed here, in the transaction of whoever decided it.

use chrono::TimeDelta;
use kernel::{
    Code, Failure, Problem,
    ids::{NodeId, TaskId},
};
use node_proto::{Task, TaskKind, TaskType, catalog::Privilege};
use pg::{ActorKind, WriteTx};
use serde_json::Value;

use crate::{Fleet, store};

pub use crate::model::waiter::Waiting;

#[derive(Clone, Debug)]
pub struct TaskRequest<K: TaskKind> {
    pub node: NodeId,
    pub input: K::Input,
    pub attempt: u32,
    /// From now until nobody wants it any more; includes the time it may wait in the queue.
    pub good_for: TimeDelta,
    pub waiting: Option<Waiting>,
}

impl Fleet {
    /// Signs and queues. The node gets it within milliseconds of the commit.
    pub async fn task_queue<K: TaskKind>(
        &self,
        tx: &mut WriteTx,
        request: TaskRequest<K>,
    ) -> Result<TaskId, Failure> {
        may_ask_for(tx.permit().actor().kind, K::TYPE.privilege())?;
        let task = NewTask {
            node: request.node,
            kind: K::TYPE,
            params: serde_json::to_value(&request.input)?,
            attempt: request.attempt,
            good_for: request.good_for,
            waiting: request.waiting,
        };
        self.queue(tx, task).await
    }

    /// Signs and queues what the caller has found to be authorised.
    pub(super) async fn queue(&self, tx: &mut WriteTx, new: NewTask) -> Result<TaskId, Failure> {
        let now = now(self);
        let id: TaskId = self.db.ambient().id();
        let origin = tx.permit().origin().clone();
        let task = Task {
            task_id: id,
            node_id: new.node,
            task_type: new.kind.name().to_owned(),
            params: new.params,
            attempt: new.attempt,
            issued_at: now,
            expires_at: now + new.good_for,
            correlation_id: origin.correlation_id.0,
            traceparent: origin.traceparent,
            signer_version: 0,
        };
        let signed = self.trust.sign_task(task.clone()).await?;
        store::tasks::insert(tx.conn(), &task, &signed, new.waiting.as_ref(), now).await?;
        Ok(id)
    }
}

/// Work as it is signed.
pub(super) struct NewTask {
    pub node: NodeId,
    pub kind: TaskType,
    pub params: Value,
    pub attempt: u32,
    pub good_for: TimeDelta,
    pub waiting: Option<Waiting>,
}

/// What nobody asked for in a request of their own was read from the database or the bus, and whoever can write
/// there must not be able to change anything on a node: it may only look.
pub(super) fn may_ask_for(actor: ActorKind, privilege: Privilege) -> Result<(), Problem> {
    match (actor, privilege) {
        (_, Privilege::Inspect) | (ActorKind::User | ActorKind::ServiceAccount, Privilege::Root) => Ok(()),
        (ActorKind::Node | ActorKind::System | ActorKind::Anonymous, Privilege::Root) => {
            let text =
                "Tasks that change a node are signed only for a request of a user or a service account.";
            Err(Problem::new(Code::InsufficientPermissions, text))
        }
    }
}

/// To the microsecond, as the database keeps it.
pub(super) fn now(fleet: &Fleet) -> chrono::DateTime<chrono::Utc> {
    let now = fleet.db.ambient().now();
    chrono::DateTime::from_timestamp_micros(now.timestamp_micros()).unwrap_or(now)
}
