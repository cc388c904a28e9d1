//! Compares claims, allocations, workflows, tasks and what nodes report, and keeps a list of what disagrees. It never
//! repairs anything: a person decides.

use std::time::Duration;

use kernel::Failure;

use crate::{Capacity, service::discrepancies::check};
use bus::periodic::every;

pub use crate::service::discrepancies::Checked;

const EVERY: Duration = Duration::from_secs(60);

/// Runs until the task is aborted.
pub async fn run(capacity: Capacity) {
    let after = std::sync::Mutex::new(None);
    every(EVERY, "records of capacity disagree", || async {
        let from = *after.lock().unwrap_or_else(|e| e.into_inner());
        let checked = check(&capacity, from).await?;
        for (kind, count) in &checked.open {
            metrics::gauge!("capacity_discrepancies_open", "kind" => kind.name()).set(*count as f64);
        }
        *after.lock().unwrap_or_else(|e| e.into_inner()) = checked.next_node;
        Ok(checked.new.len())
    })
    .await;
}

/// One turn from the beginning.
pub async fn check_once(capacity: &Capacity) -> Result<Checked, Failure> {
    check(capacity, None).await
}
