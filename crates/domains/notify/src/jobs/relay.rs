//! Sends what is due. Each channel has a lane: so many messages at once, each with a limit of its own, and what waits in
//! one lane is not seen by the other.

use std::time::Duration;

use chrono::TimeDelta;
use kernel::Failure;
use pg::Wake;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    CHANNEL, Notify, Relay,
    model::delivery::{Channel, Taken},
    service::sending,
    store,
};

const MAILS_AT_ONCE: usize = 8;
const WEBHOOKS_AT_ONCE: usize = 32;
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Above what any attempt may take.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_secs(30);
const KEEP_NOTIFICATIONS: TimeDelta = TimeDelta::days(180);
const KEEP_DELIVERIES: TimeDelta = TimeDelta::days(30);
const BATCH: i64 = 1000;

pub(super) async fn run(relay: Relay) {
    tokio::join!(
        lane(relay.clone(), Channel::Mail),
        lane(relay.clone(), Channel::Webhook),
        looking_after(relay.notify)
    );
}

const fn at_once(channel: Channel) -> usize {
    match channel {
        Channel::Mail => MAILS_AT_ONCE,
        Channel::Webhook => WEBHOOKS_AT_ONCE,
    }
}

async fn lane(relay: Relay, channel: Channel) {
    let mut wakes = relay.notify.wake.as_ref().map(Wake::subscribe);
    let mut running = JoinSet::new();
    loop {
        while running.try_join_next().is_some() {}
        let free = at_once(channel).saturating_sub(running.len());
        if free > 0 {
            match sending::take(&relay, channel, free).await {
                Ok(taken) => {
                    for one in taken {
                        let relay = relay.clone();
                        running.spawn(async move { send_one(&relay, channel, one).await });
                    }
                }
                Err(failure) => {
                    tracing::warn!(channel = channel.name(), error = ?failure, "messages cannot be taken; trying again");
                    tokio::time::sleep(POLL_EVERY).await;
                }
            }
        }
        let full = running.len() >= at_once(channel);
        tokio::select! {
            _ = running.join_next(), if !running.is_empty() => {}
            () = something(&mut wakes), if !full => {}
        }
    }
}

/// Until there may be something to send.
async fn something(wakes: &mut Option<tokio::sync::broadcast::Receiver<pg::Notice>>) {
    match wakes {
        Some(wakes) => Wake::wait(wakes, CHANNEL, POLL_EVERY).await,
        None => tokio::time::sleep(POLL_EVERY).await,
    }
}

/// What goes wrong here is about our own database: the message comes again when its lease is over.
async fn send_one(relay: &Relay, channel: Channel, taken: Taken) {
    let id = taken.id;
    let sent = tokio::time::timeout(PATIENCE, Box::pin(sending::send(relay, channel, taken))).await;
    match sent {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => tracing::warn!(delivery_id = %id, error = ?failure, "a message comes again"),
        Err(_) => tracing::warn!(delivery_id = %id, "a message took too long and comes again"),
    }
}

/// One turn of a lane: sends what is due now, and answers how much that was.
pub async fn send_due(relay: &Relay, channel: Channel) -> Result<usize, Failure> {
    let taken = sending::take(relay, channel, at_once(channel)).await?;
    let count = taken.len();
    futures_util::future::join_all(taken.into_iter().map(|one| send_one(relay, channel, one))).await;
    Ok(count)
}

/// Says how the lanes stand, and removes what is old.
async fn looking_after(notify: Notify) {
    let mut tick = tokio::time::interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(failure) = look(&notify).await {
            tracing::warn!(error = ?failure, "messages could not be looked after; trying again");
        }
    }
}

async fn look(notify: &Notify) -> Result<(), Failure> {
    let now = notify.db.ambient().now();
    let mut upkeep = notify.db.upkeep("look after messages").await?;
    for channel in [Channel::Mail, Channel::Webhook] {
        let standing = store::relay::standing(upkeep.conn(), channel).await?;
        let age = standing.oldest_queued_at.map_or(0, |at| (now - at).num_seconds().max(0));
        let name = channel.name();
        metrics::gauge!("notify_deliveries", "channel" => name, "state" => "queued")
            .set(standing.queued as f64);
        metrics::gauge!("notify_deliveries", "channel" => name, "state" => "failed")
            .set(standing.failed as f64);
        metrics::gauge!("notify_oldest_queued_seconds", "channel" => name).set(age as f64);
    }
    store::relay::forget(upkeep.conn(), now - KEEP_NOTIFICATIONS, now - KEEP_DELIVERIES, BATCH).await?;
    Ok(())
}
