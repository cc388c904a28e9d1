//! After a restore from a backup: compares the records with the nodes, again and again, until an operator resumes.

use std::time::Duration;

use bus::periodic::every_within;

use crate::{Capacity, service::restore::compare};

const EVERY: Duration = Duration::from_secs(2);
const AT_MOST: Duration = Duration::from_secs(300);

/// Runs until the task is aborted.
pub async fn run(capacity: Capacity) {
    every_within(AT_MOST, EVERY, "the restored records differ from the nodes", || async {
        Ok(compare(&capacity).await?.new.len())
    })
    .await;
}
