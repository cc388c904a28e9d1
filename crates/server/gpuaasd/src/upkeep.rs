//! Forgetting what nobody asks for any more.

use std::time::Duration;

use chrono::TimeDelta;
use endpoint::Services;
use kernel::policy::keys;
use pg::Db;

const FORGET_EVERY: Duration = Duration::from_secs(3600);

/// Runs of workflows are kept for some weeks after their end.
pub async fn forget_old_runs(db: Db) {
    loop {
        tokio::time::sleep(FORGET_EVERY).await;
        match saga::tidy(&db).await {
            Ok(forgotten) => tracing::debug!(forgotten, "old workflow runs were forgotten"),
            Err(error) => tracing::warn!(%error, "old workflow runs could not be forgotten; trying again"),
        }
    }
}

/// Stored responses are kept as long as policy says.
pub async fn forget_old_answers(services: Services) {
    loop {
        tokio::time::sleep(FORGET_EVERY).await;
        let key = keys::IDEMPOTENCY_RETENTION_DAYS;
        let days = match services.policies.setting(key, None, None).await {
            Ok(days) => TimeDelta::days(days.get()),
            Err(_) => continue,
        };
        let cutoff = services.db.ambient().now() - days;
        match pg::idempotency_forget(&services.db, cutoff).await {
            Ok(forgotten) => tracing::debug!(forgotten, "old idempotency records were forgotten"),
            Err(error) => tracing::warn!(%error, "idempotency records could not be forgotten; trying again"),
        }
    }
}
