//! Compares the books every few minutes. It never repairs anything: a person decides.

use std::{sync::Arc, time::Duration};

use crate::{
    Billing,
    service::{adjustments::adjustments_measure, reconcile::reconcile},
};

pub use crate::service::reconcile::{Progress, Reconciled, RunningAllocations};

const EVERY: Duration = Duration::from_secs(180);
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs until the task is aborted. Several at once do no harm.
pub async fn run(billing: Billing, running: Option<Arc<dyn RunningAllocations>>) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut progress = Progress::default();
    loop {
        tick.tick().await;
        if let Err(failure) = adjustments_measure(&billing).await {
            tracing::warn!(error = ?failure, "counting pending adjustments failed; retrying");
        }
        let turn = reconcile(&billing, running.as_deref(), &mut progress);
        match tokio::time::timeout(PATIENCE, turn).await {
            Ok(Ok(done)) => {
                for (kind, count) in &done.open {
                    metrics::gauge!("billing_findings_open", "kind" => kind.name()).set(*count as f64);
                }
                if !done.new.is_empty() || done.resolved > 0 {
                    tracing::info!(
                        count = done.new.len(),
                        resolved = done.resolved,
                        "billing records were compared"
                    );
                }
            }
            Ok(Err(failure)) => {
                tracing::warn!(error = ?failure, "comparing billing records failed; retrying")
            }
            Err(_) => tracing::warn!("comparing billing records timed out; retrying"),
        }
    }
}
