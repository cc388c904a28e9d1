//! Periodic work and consumers of the fleet. Any replica may run them, and several at once do no harm.

pub mod census;
pub mod certificates;
pub mod expiry;
pub mod offline;
mod onboarding_consumer;
pub mod removal;
pub mod retention;

use crate::Fleet;

/// Every consumer of this domain. They queue work, so they belong where work can be signed.
pub fn consumers(fleet: &Fleet) -> Vec<bus::Registration> {
    vec![bus::Registration::for_consumer(onboarding_consumer::OnboardingConsumer::new(fleet.clone()))]
}

/// All periodic work, until the task is aborted.
pub async fn run(fleet: Fleet) {
    tokio::join!(
        offline::run(fleet.clone()),
        removal::run(fleet.clone()),
        expiry::run(fleet.clone()),
        census::run(fleet.clone()),
        certificates::run(fleet.clone()),
        retention::run(fleet),
    );
}
