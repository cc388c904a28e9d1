//! Work orders: what a person's request authorised on a node, sealed where the database cannot follow.
//!
//! A workflow outlives the request that began it, and what it reads later was lying in the database. So the request
//! itself fixes the work: the exact kinds and parameters, on one node, sealed with a key that is derived from the
//! master key and bound to whom it is for. The workflow can have exactly that queued and nothing else; whoever can
//! write to the database can repeat or withhold it, and not change it.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Code, Failure, Problem,
    ids::{NodeId, TaskId},
};
use node_proto::{
    TaskKind,
    catalog::{KeyRemovalKind, KeySetKind, Privilege},
};
use pg::WriteTx;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tasks::{NewTask, Waiting, may_ask_for};
use crate::Fleet;

/// `details.reason` of the refusal of work whose time is over.
pub const ORDER_LATE: &str = "late";
/// More kinds of work than this no request authorises.
const MOST_WORK: usize = 16;

/// One piece of work that a request authorises.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderedWork {
    task_type: String,
    params: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<DateTime<Utc>>,
}

impl OrderedWork {
    pub fn from_input<K: TaskKind>(input: &K::Input) -> Result<Self, Failure> {
        let (task_type, params) = (K::TYPE.name().to_owned(), serde_json::to_value(input)?);
        Ok(Self { task_type, params, until: None })
    }

    /// It is authorised only until then.
    #[must_use]
    pub fn until(mut self, until: DateTime<Utc>) -> Self {
        self.until = Some(until);
        self
    }
}

/// What is sealed.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    node_id: NodeId,
    work: Vec<OrderedWork>,
}

/// How ordered work is to be queued; what it is stands in the order.
#[derive(Clone, Debug)]
pub struct OrderedRequest {
    pub attempt: u32,
    /// From now until nobody wants it any more; never beyond what the order allows.
    pub good_for: TimeDelta,
    pub waiting: Option<Waiting>,
}

impl Fleet {
    /// Seals what the request of a person or service account authorises on `node`. Each kind of work stands in an
    /// order once.
    pub fn order_seal(
        &self,
        tx: &WriteTx,
        subject: &str,
        node: NodeId,
        work: Vec<OrderedWork>,
    ) -> Result<Vec<u8>, Failure> {
        may_ask_for(tx.permit().actor().kind, Privilege::Root)?;
        let repeated =
            work.iter().enumerate().any(|(n, a)| work[..n].iter().any(|b| a.task_type == b.task_type));
        if work.is_empty() || work.len() > MOST_WORK || repeated {
            return Err(Failure::from(OrderError::Shape));
        }
        let order = serde_json::to_vec(&Order { node_id: node, work })?;
        Ok(self.trust.order_seal(subject, &order)?)
    }

    /// Seals more work for the node of an order that `subject` has already: rows may name another by now, the order
    /// does not.
    pub fn order_extend(
        &self,
        tx: &WriteTx,
        subject: &str,
        order: &[u8],
        work: Vec<OrderedWork>,
    ) -> Result<Vec<u8>, Failure> {
        let Some(earlier) = self.order_opened(subject, order) else {
            tracing::error!(
                subject,
                "tampering: a work order is not what was sealed; nothing is added to it"
            );
            metrics::counter!("work_orders_refused_total", "reason" => "not_ours").increment(1);
            return Err(Problem::new(Code::Unprocessable, NOT_OURS).into());
        };
        self.order_seal(tx, subject, earlier.node_id, work)
    }

    fn order_opened(&self, subject: &str, order: &[u8]) -> Option<Order> {
        let opened = self.trust.order_open(subject, order).ok()?;
        serde_json::from_slice(opened.expose()).ok()
    }

    /// Queues the work of this kind that the order of `subject` holds: those parameters, for that node.
    pub async fn task_queue_ordered<K: TaskKind>(
        &self,
        tx: &mut WriteTx,
        order: &[u8],
        subject: &str,
        request: OrderedRequest,
    ) -> Result<TaskId, Failure> {
        self.queue_ordered::<K>(tx, order, subject, request, Ok).await
    }

    /// The same for a set of keys, without those that are not in `keep`: whoever lost access since the order was sealed
    /// does not get it by that.
    pub async fn task_queue_ordered_keys<K: KeySetKind>(
        &self,
        tx: &mut WriteTx,
        order: &[u8],
        subject: &str,
        keep: &[String],
        request: OrderedRequest,
    ) -> Result<TaskId, Failure> {
        let reduced = |params: Value| {
            let mut input: K::Input = serde_json::from_value(params)?;
            K::keys_mut(&mut input).retain(|key| keep.contains(key));
            serde_json::to_value(input)
        };
        self.queue_ordered::<K>(tx, order, subject, request, reduced).await
    }

    /// Queues work that only takes keys from a machine, for the node that the order names. It needs no order of its
    /// own: whoever can write to the database can lock people out by it, and let nobody in.
    pub async fn task_queue_key_removal<K: KeyRemovalKind>(
        &self,
        tx: &mut WriteTx,
        order: &[u8],
        subject: &str,
        input: &K::Input,
        request: OrderedRequest,
    ) -> Result<TaskId, Failure> {
        let kind = K::TYPE.name();
        let Some(order) = self.order_opened(subject, order) else {
            return Err(self.order_refused(tx, subject, kind, "not_ours", NOT_OURS).await);
        };
        let task = NewTask {
            node: order.node_id,
            kind: K::TYPE,
            params: serde_json::to_value(input)?,
            attempt: request.attempt,
            good_for: request.good_for,
            waiting: request.waiting,
        };
        self.queue(tx, task).await
    }

    async fn queue_ordered<K: TaskKind>(
        &self,
        tx: &mut WriteTx,
        order: &[u8],
        subject: &str,
        request: OrderedRequest,
        reduced: impl FnOnce(Value) -> Result<Value, serde_json::Error> + Send,
    ) -> Result<TaskId, Failure> {
        let kind = K::TYPE.name();
        let Some(order) = self.order_opened(subject, order) else {
            return Err(self.order_refused(tx, subject, kind, "not_ours", NOT_OURS).await);
        };
        let Some(work) = order.work.into_iter().find(|work| work.task_type == kind) else {
            let text = "The work order does not contain this task kind.";
            return Err(self.order_refused(tx, subject, kind, "other_work", text).await);
        };
        // An order of an earlier version may hold what no node should be asked for any more.
        if let Err(error) = serde_json::from_value::<K::Input>(work.params.clone()) {
            tracing::warn!(subject, task_type = kind, %error, "a work order holds work that is not signed any more");
            metrics::counter!("work_orders_refused_total", "reason" => "outdated").increment(1);
            let text = "The work order was created by an earlier version and contains a task kind that is no longer supported.";
            return Err(Problem::new(Code::Unprocessable, text)
                .detail("task_type", kind)
                .suggest("Request the operation again.")
                .into());
        }
        let now = super::tasks::now(self);
        let left = work.until.map_or(request.good_for, |until| request.good_for.min(until - now));
        if left <= TimeDelta::zero() {
            metrics::counter!("work_orders_refused_total", "reason" => "late").increment(1);
            let text = "The authorization of this work has expired.";
            return Err(Problem::new(Code::Unprocessable, text)
                .detail("task_type", kind)
                .detail("reason", ORDER_LATE)
                .suggest("Request the operation again.")
                .into());
        }
        let task = NewTask {
            node: order.node_id,
            kind: K::TYPE,
            params: reduced(work.params)?,
            attempt: request.attempt,
            good_for: left,
            waiting: request.waiting,
        };
        self.queue(tx, task).await
    }

    /// An order that is not what was sealed means that somebody wrote to the database.
    async fn order_refused(
        &self,
        tx: &WriteTx,
        subject: &str,
        kind: &'static str,
        reason: &'static str,
        text: &'static str,
    ) -> Failure {
        tracing::error!(
            subject,
            task_type = kind,
            reason,
            "tampering: a work order is not what was sealed; nothing is signed"
        );
        metrics::counter!("work_orders_refused_total", "reason" => reason).increment(1);
        let refusal = pg::Refusal {
            actor: tx.permit().actor(),
            scope: pg::Scope::Platform,
            action: "task.order",
            target: ("work_order", Some(subject.to_owned())),
            code: Code::Unprocessable,
        };
        if let Err(error) = pg::refuse(&self.db, refusal, tx.permit().origin()).await {
            tracing::error!(%error, subject, "a refused work order could not be audited");
        }
        Problem::new(Code::Unprocessable, text)
            .detail("task_type", kind)
            .suggest(
                "Check the audit trail and the access to the database, then request the operation again.",
            )
            .into()
    }
}

const NOT_OURS: &str =
    "The work order cannot be decrypted: its content or context differs from what was sealed.";

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("a work order holds between one and sixteen pieces of work, each kind once")]
    Shape,
}
