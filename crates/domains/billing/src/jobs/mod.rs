//! Periodic work and consumers. Any replica may run them, and several at once do no harm.

pub mod accrual;
pub mod checkpoints;
pub mod reconcile;

use pg::Wake;

use crate::Billing;

/// Accrues until the task is aborted. Checkpoints and reconciliation have a `run` of their own.
pub async fn run(billing: Billing, wake: Wake) {
    accrual::run(billing, wake).await;
}
