//! How the queues of messages stand, and how long what is over is kept.

use chrono::TimeDelta;
use kernel::Failure;

use super::listening::listeners_expire;
use crate::{Notify, model::delivery::Channel, store};

const KEEP_NOTIFICATIONS: TimeDelta = TimeDelta::days(180);
const KEEP_DELIVERIES: TimeDelta = TimeDelta::days(30);
const BATCH: i64 = 1000;

/// Measures the queue of each channel, deletes listeners that nobody listens to, and forgets notifications and messages
/// that are old.
pub async fn queues_maintain(notify: &Notify) -> Result<(), Failure> {
    let now = notify.db.ambient().now();
    let mut upkeep = notify.db.upkeep("upkeep of the message queue").await?;
    for channel in Channel::ALL {
        let status = store::relay::queue_status(upkeep.conn(), channel).await?;
        let age = status.oldest_queued_at.map_or(0, |at| (now - at).num_seconds().max(0));
        let name = channel.name();
        metrics::gauge!("notify_deliveries", "channel" => name, "state" => "queued")
            .set(status.queued as f64);
        metrics::gauge!("notify_deliveries", "channel" => name, "state" => "failed")
            .set(status.failed as f64);
        metrics::gauge!("notify_oldest_queued_seconds", "channel" => name).set(age as f64);
    }
    drop(upkeep);
    listeners_expire(notify).await?;
    let mut upkeep = notify.db.upkeep("upkeep of the message queue").await?;
    store::relay::forget(upkeep.conn(), now - KEEP_NOTIFICATIONS, now - KEEP_DELIVERIES, BATCH).await?;
    Ok(())
}
