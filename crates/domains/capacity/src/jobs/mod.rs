//! Periodic work and consumers. Any replica may run them, and several at once do no harm.

pub mod consistency;
mod fault_consumers;
mod group_consumer;
mod money_consumers;

pub mod restore;
use std::time::Duration;

use bus::periodic::every;

use crate::{Capacity, service::forced::release_overdue};

pub use fault_consumers::{ActiveConsumer, FaultConsumer};
pub use group_consumer::GroupConsumer;
pub use money_consumers::{BudgetConsumer, DepletionConsumer};

const OVERDUE_EVERY: Duration = Duration::from_secs(30);

/// Every consumer of this domain.
pub fn consumers(capacity: &Capacity) -> Vec<bus::Registration> {
    vec![
        bus::Registration::of(GroupConsumer::new(capacity.clone())),
        bus::Registration::of(DepletionConsumer(capacity.clone())),
        bus::Registration::of(BudgetConsumer(capacity.clone())),
        bus::Registration::of(FaultConsumer(capacity.clone())),
        bus::Registration::of(ActiveConsumer(capacity.clone())),
    ]
}

/// All periodic work, until the task is aborted.
pub async fn run(capacity: Capacity) {
    let overdue = every(OVERDUE_EVERY, "released, because the balance was used up a while ago", || {
        release_overdue(&capacity)
    });
    tokio::join!(consistency::run(capacity.clone()), overdue);
}
