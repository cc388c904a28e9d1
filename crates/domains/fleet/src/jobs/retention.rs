//! Forgets old log lines of nodes, a few nodes at a time. Whoever takes lines in forgets as well; this catches what
//! a restart or a smaller policy left.

use std::time::Duration;

use uuid::Uuid;

use crate::{Fleet, service::logs::trim_some};

const EVERY: Duration = Duration::from_secs(15);
const NODES: i64 = 50;

/// Runs until the task is aborted.
pub async fn run(fleet: Fleet) {
    let mut after = Uuid::nil();
    loop {
        tokio::time::sleep(EVERY).await;
        match trim_some(&fleet, after, NODES).await {
            Ok(last) => after = last.map_or(Uuid::nil(), |node| node.uuid()),
            Err(failure) => {
                tracing::warn!(error = ?failure, "old log lines of nodes could not be forgotten; trying again");
            }
        }
    }
}
