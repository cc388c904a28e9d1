//! Notices nodes that stopped reporting. It only stops new placement: no task and no slot is touched.

use std::time::Duration;

use bus::periodic::every;

use crate::{Fleet, service::contact_loss::nodes_lose_contact};

const EVERY: Duration = Duration::from_secs(2);
/// Nodes marked in one turn; more wait for the next.
const BATCH: i64 = 200;

pub async fn run(fleet: Fleet) {
    let started_at = fleet.db().ambient().now();
    every(EVERY, "nodes went offline", || nodes_lose_contact(&fleet, started_at, BATCH)).await;
}
