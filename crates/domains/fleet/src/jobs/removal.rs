//! Completes removals, and forgets tokens, certificates and tasks that ended long ago.

use std::time::Duration;

use bus::periodic::every;

use crate::{
    Fleet,
    service::removal::{nodes_delete, tidy},
};

const EVERY: Duration = Duration::from_secs(2);
const TIDY_EVERY: Duration = Duration::from_secs(600);
const BATCH: i64 = 100;
const TIDY_BATCH: i64 = 5000;

pub async fn run(fleet: Fleet) {
    tokio::join!(
        every(EVERY, "nodes were deleted", || nodes_delete(&fleet, BATCH)),
        every(TIDY_EVERY, "old tokens, certificates and tasks of nodes were forgotten", || tidy(
            &fleet, TIDY_BATCH
        )),
    );
}
