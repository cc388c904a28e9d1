//! Signs the heads of the chains once a day.

use std::time::Duration;

use crate::{Billing, service::checkpoints::checkpoints_sign};

/// Chains are looked at every hour; each is signed once a day, when it moved.
const PERIOD: Duration = Duration::from_secs(3600);
/// What takes longer is tried again.
const PATIENCE: Duration = Duration::from_secs(600);

/// Until the task is aborted.
pub async fn run(billing: Billing) {
    let mut tick = tokio::time::interval(PERIOD);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        match tokio::time::timeout(PATIENCE, checkpoints_sign(&billing)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => tracing::info!(count, "ledgers signed"),
            Ok(Err(failure)) => tracing::warn!(error = ?failure, "ledgers not signed, trying again"),
            Err(_) => tracing::warn!("signing the ledgers took too long, trying again"),
        }
    }
}
