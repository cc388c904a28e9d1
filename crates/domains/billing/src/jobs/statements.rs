//! Numbers the statements of months that have ended.

use std::time::Duration;

use bus::periodic::every_within;

use crate::{Billing, service::statement_numbers::statements_issue};

const PERIOD: Duration = Duration::from_secs(300);
/// What takes longer is tried again.
const PATIENCE: Duration = Duration::from_secs(120);

/// Until the task is aborted. Several at once do no harm.
pub async fn run(billing: Billing) {
    every_within(PATIENCE, PERIOD, "statements were numbered", || statements_issue(&billing)).await;
}
