//! Periodic work and consumers. Any replica may run them, and several at once do no harm.

mod access_consumers;
pub mod consistency;
mod fault_consumers;
mod group_consumer;
mod money_consumers;
pub mod restore;

use std::time::Duration;

use bus::{ConsumerPolicy, periodic::every};
use kernel::{CorrelationId, event::Envelope};
use pg::Origin;

use crate::{
    Capacity,
    service::{forced::release_overdue, key_removal::keys_remove_all},
};

use access_consumers::{AccessLostConsumer, NodeBackConsumer};
use fault_consumers::{ActiveConsumer, FaultConsumer};
use group_consumer::GroupConsumer;
use money_consumers::{BudgetConsumer, DepletionConsumer, SpendCapConsumer};

const OVERDUE_EVERY: Duration = Duration::from_secs(30);
const KEYS_EVERY: Duration = Duration::from_secs(60);

/// Of consumers that work in many transactions, to release machines or to take keys off them: few at once.
fn reconciler_policy() -> ConsumerPolicy {
    ConsumerPolicy { concurrency: 2, handler_timeout: Duration::from_secs(90), ..ConsumerPolicy::default() }
}

/// What such a transaction continues.
fn envelope_origin(envelope: &Envelope) -> Origin {
    Origin {
        correlation_id: CorrelationId(envelope.correlation_id),
        source_ip: None,
        traceparent: envelope.traceparent.clone(),
    }
}

/// Every consumer of this domain.
pub fn consumers(capacity: &Capacity) -> Vec<bus::Registration> {
    vec![
        bus::Registration::for_consumer(GroupConsumer::new(capacity.clone())),
        bus::Registration::reconciling(DepletionConsumer(capacity.clone())),
        bus::Registration::reconciling(BudgetConsumer(capacity.clone())),
        bus::Registration::reconciling(SpendCapConsumer(capacity.clone())),
        bus::Registration::for_consumer(FaultConsumer(capacity.clone())),
        bus::Registration::for_consumer(ActiveConsumer(capacity.clone())),
        bus::Registration::reconciling(AccessLostConsumer(capacity.clone())),
        bus::Registration::reconciling(NodeBackConsumer(capacity.clone())),
    ]
}

/// All periodic work, until the task is aborted.
pub async fn run(capacity: Capacity) {
    let overdue =
        every(OVERDUE_EVERY, "released, because a balance or a budget was used up a while ago", || {
            release_overdue(&capacity)
        });
    let keys = every(KEYS_EVERY, "machines must give up keys of people who may no longer log in", || {
        keys_remove_all(&capacity)
    });
    tokio::join!(consistency::run(capacity.clone()), overdue, keys);
}
