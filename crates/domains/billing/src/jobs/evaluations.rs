//! Evaluates balances and budgets as soon as a meter opens, closes, pauses or resumes.

use std::time::Duration;

use pg::Wake;

use crate::{
    Billing,
    service::evaluations::{QueueTurn, queue_evaluate},
};

/// Notified by whatever changes a meter.
const CHANNEL: &str = "gpuaas_balances";
/// Time between two turns: what comes in between is evaluated together.
const REST: Duration = Duration::from_millis(200);
/// The longest that a lost notification costs.
const POLL: Duration = Duration::from_secs(10);
/// While something is left, or after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// A turn that takes longer is cut off; what was committed stays.
const TURN_AT_MOST: Duration = Duration::from_secs(60);

/// Runs until the task is aborted. Several at once do no harm.
pub async fn run(billing: Billing, wake: Wake) {
    let mut notices = wake.subscribe();
    loop {
        let pause = match tokio::time::timeout(TURN_AT_MOST, queue_evaluate(&billing)).await {
            Ok(Ok(QueueTurn { more: false, .. })) => POLL,
            Ok(Ok(_)) => RETRY,
            Ok(Err(failure)) => {
                tracing::warn!(error = ?failure, "evaluation of balances failed; retrying");
                billing.db.suspect();
                RETRY
            }
            Err(_) => {
                tracing::warn!("evaluation of balances timed out; continuing with the rest");
                RETRY
            }
        };
        tokio::time::sleep(REST).await;
        Wake::wait(&mut notices, CHANNEL, pause.saturating_sub(REST)).await;
    }
}
