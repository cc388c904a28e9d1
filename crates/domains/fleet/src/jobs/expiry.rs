//! Ends tasks whose time is over.

use std::time::Duration;

use crate::{Fleet, service::dispatch::expire_overdue};

const EVERY: Duration = Duration::from_secs(2);
/// Tasks ended in one turn; more wait for the next, which then comes at once.
const BATCH: i64 = 200;
/// One turn may take this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs until the task is aborted. A turn that fails is logged, and the next comes all the same.
pub async fn run(fleet: Fleet) {
    loop {
        let more = match tokio::time::timeout(PATIENCE, expire_overdue(&fleet, BATCH)).await {
            Ok(Ok(ended)) => {
                if ended > 0 {
                    tracing::info!(ended, "tasks expired");
                }
                ended as i64 >= BATCH
            }
            Ok(Err(failure)) => {
                tracing::warn!(error = ?failure, "tasks could not be expired; trying again");
                false
            }
            Err(_) => {
                tracing::warn!("expiring tasks took too long; trying again");
                false
            }
        };
        if !more {
            tokio::time::sleep(EVERY).await;
        }
    }
}
