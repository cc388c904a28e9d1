//! Periodic work and consumers of the fleet. Any replica may run them, and several at once do no harm.

pub mod census;
pub mod expiry;
pub mod offline;
mod onboarding_consumer;
pub mod removal;
pub mod retention;

use std::{future::Future, time::Duration};

use kernel::Failure;

use crate::Fleet;

pub use onboarding_consumer::OnboardingConsumer;

/// Every consumer of this domain. They queue work, so they belong where work can be signed.
pub fn consumers(fleet: &Fleet) -> Vec<bus::Registration> {
    vec![bus::Registration::of(OnboardingConsumer::new(fleet.clone()))]
}

/// All periodic work, until the task is aborted.
pub async fn run(fleet: Fleet) {
    tokio::join!(
        offline::run(fleet.clone()),
        removal::run(fleet.clone()),
        expiry::run(fleet.clone()),
        census::run(fleet.clone()),
        retention::run(fleet),
    );
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
