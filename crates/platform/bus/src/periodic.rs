//! Periodic jobs.

use std::{future::Future, time::Duration};

use kernel::Failure;

/// [`every_within`] a minute for each turn.
pub async fn every<F: Future<Output = Result<usize, Failure>>>(
    period: Duration,
    what: &'static str,
    turn: impl FnMut() -> F,
) {
    every_within(Duration::from_secs(60), period, what, turn).await;
}

/// One turn after the other, the first at once. A turn answers how much it did; one that fails or takes too long is
/// logged, and the next comes all the same. Never ends.
pub async fn every_within<F: Future<Output = Result<usize, Failure>>>(
    patience: Duration,
    period: Duration,
    what: &'static str,
    mut turn: impl FnMut() -> F,
) {
    let mut tick = tokio::time::interval(period);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        match tokio::time::timeout(patience, turn()).await {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => tracing::info!(count, "{what}"),
            Ok(Err(failure)) => tracing::warn!(error = ?failure, "not done, trying again: {what}"),
            Err(_) => tracing::warn!("took too long, trying again: {what}"),
        }
    }
}
