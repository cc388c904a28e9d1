//! Periodic work and consumers. Any replica may run them, and several at once do no harm.

pub mod consistency;
mod fault_consumers;
mod group_consumer;
mod money_consumers;

use std::{future::Future, time::Duration};

use kernel::Failure;

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

/// One turn after the other. A turn that fails or takes too long is logged, and the next comes all the same.
async fn every<F: Future<Output = Result<usize, Failure>>>(
    period: Duration,
    what: &'static str,
    mut turn: impl FnMut() -> F,
) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let mut tick = tokio::time::interval(period);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        match tokio::time::timeout(PATIENCE, turn()).await {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => tracing::info!(count, "{what}"),
            Ok(Err(failure)) => tracing::warn!(error = ?failure, "not done, trying again: {what}"),
            Err(_) => tracing::warn!("took too long, trying again: {what}"),
        }
    }
}
