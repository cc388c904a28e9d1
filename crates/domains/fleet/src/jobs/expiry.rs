//! Ends tasks whose time is over.

use std::time::Duration;

use crate::{Fleet, service::dispatch::expire_overdue};

const EVERY: Duration = Duration::from_secs(2);
/// Tasks that are looked up at once.
const PAGE: i64 = 200;

/// Runs until the task is aborted. A turn that fails is logged, and the next comes all the same.
pub async fn run(fleet: Fleet) {
    bus::periodic::every(EVERY, "tasks expired", || expire_overdue(&fleet, PAGE)).await;
}
