//! Accrues every window, when a meter has closed, and when a balance is about to end.

use std::time::Duration;

use chrono::TimeDelta;
use kernel::Failure;
use pg::Wake;

use crate::{
    Billing,
    service::{
        accrual::{Ticked, tick, window_floor, window_seconds},
        balance::next_end,
    },
};

/// Notified by whoever closes a meter.
const CHANNEL: &str = "gpuaas_billing";
/// However much happens, there is time between two ticks: what came in between is done together.
const REST: Duration = Duration::from_secs(1);
/// After a failure, and the longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(10);
/// A tick that takes longer is cut off. Nothing is lost: what was committed stays and the next goes on from there.
const TICK_AT_MOST: Duration = Duration::from_secs(600);

/// Runs until the task is aborted. Several at once do no harm.
pub async fn run(billing: Billing, wake: Wake) {
    let mut notices = wake.subscribe();
    loop {
        let began = tokio::time::Instant::now();
        let pause = match tokio::time::timeout(TICK_AT_MOST, turn(&billing)).await {
            Ok(Ok(pause)) => pause,
            Ok(Err(failure)) => {
                tracing::warn!(error = ?failure, "accrual of meters failed; retrying");
                billing.db.suspect();
                PATIENCE
            }
            Err(_) => {
                tracing::warn!("accrual timed out; continuing with the remaining meters");
                REST
            }
        };
        metrics::histogram!("billing_tick_seconds").record(began.elapsed().as_secs_f64());
        tokio::time::sleep(REST).await;
        Wake::wait(&mut notices, CHANNEL, pause.saturating_sub(REST)).await;
    }
}

/// One tick; answers how long to wait for the next.
async fn turn(billing: &Billing) -> Result<Duration, Failure> {
    let Ticked { windows, posted_minor, rewound, lag_seconds, more, clock_skewed } = tick(billing).await?;
    if clock_skewed {
        return Ok(LONGEST);
    }
    metrics::gauge!("billing_accrual_lag_seconds").set(lag_seconds as f64);
    if windows > 0 || rewound > 0 {
        tracing::debug!(windows, posted_minor, rewound, lag_seconds, "accrued");
    }
    if more {
        return Ok(REST);
    }
    let now = billing.db.ambient().now();
    let window = window_seconds(billing).await?;
    let mut next = window_floor(now, window) + TimeDelta::seconds(window);
    if let Some(end) = next_end(billing).await? {
        next = next.min(end);
    }
    // The wall clock may be stepped and the window made shorter while we wait.
    Ok((next - now).to_std().unwrap_or_default().clamp(REST, LONGEST))
}
