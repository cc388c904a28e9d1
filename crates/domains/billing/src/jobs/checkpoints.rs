//! Signs the heads of the chains once a day.

use std::time::Duration;

use bus::periodic::every_within;

use crate::{Billing, service::checkpoints::checkpoints_sign};

/// Chains are looked at every hour; each is signed once a day, when it moved.
const PERIOD: Duration = Duration::from_secs(3600);
/// What takes longer is tried again.
const PATIENCE: Duration = Duration::from_secs(600);

/// Until the task is aborted.
pub async fn run(billing: Billing) {
    every_within(PATIENCE, PERIOD, "ledgers were signed", || checkpoints_sign(&billing)).await;
}
