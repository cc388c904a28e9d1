//! Periodic work and consumers. Any replica may run them, and several at once do no harm.

pub mod accrual;
pub mod checkpoints;
pub mod reconcile;
