//! Periodic work and consumers. Any replica may run them, and several at once do no harm.

pub mod accrual;
pub mod checkpoints;
pub mod evaluations;
pub mod reconcile;
pub mod statements;

use pg::Wake;

use crate::Billing;

/// Accrues and evaluates balances until the task is aborted. Checkpoints and reconciliation have a `run` of their own.
pub async fn run(billing: Billing, wake: Wake) {
    tokio::join!(accrual::run(billing.clone(), wake.clone()), evaluations::run(billing, wake));
}
