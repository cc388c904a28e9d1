//! Periodic work of identity. Any replica may run it, and several at once do no harm.

mod invitation_closer;

use std::time::Duration;

use kernel::Failure;
use pg::Db;

pub use crate::service::invitations::invitations_expire;

/// Every consumer of this domain.
pub fn consumers() -> Vec<bus::Registration> {
    vec![bus::Registration::for_consumer(invitation_closer::InvitationCloser)]
}

const EVERY: Duration = Duration::from_secs(60);
/// Invitations expired in one turn; more wait for the next.
const BATCH: i64 = 200;

/// Runs until the task is aborted. A turn that fails is logged, and the next comes all the same.
pub async fn run(db: Db) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        turn(&db).await;
    }
}

async fn turn(db: &Db) {
    match tokio::time::timeout(EVERY, invitations_expire(db, BATCH)).await {
        Ok(Ok(0)) => {}
        Ok(Ok(expired)) => tracing::info!(expired, "invitations expired"),
        Ok(Err(failure)) => log_failure(&failure),
        Err(_) => tracing::warn!("expiring invitations took too long; trying again"),
    }
}

fn log_failure(failure: &Failure) {
    tracing::warn!(error = ?failure, "invitations could not be expired; trying again");
}
