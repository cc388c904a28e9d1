//! Sends what is due. Each channel has a lane: so many messages at once, each with a limit of its own, and what waits in
//! one lane is not seen by the other.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kernel::{Failure, ids::DeliveryId};
use pg::Wake;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    CHANNEL, Notify, Relay,
    model::delivery::{Channel, LeasedDelivery},
    service::{queue_upkeep::queues_maintain, sending},
};

const MAILS_AT_ONCE: usize = 8;
const INVITATIONS_AT_ONCE: usize = 4;
const WEBHOOKS_AT_ONCE: usize = 32;
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Above what any attempt may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// Shorter than what a process has for its stop, so that what does not end in time can still be given back.
const STOP_WITHIN: Duration = Duration::from_secs(4);
const UPKEEP_INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn run(relay: Relay, stop: CancellationToken) {
    tokio::join!(
        lane(relay.clone(), Channel::Mail, &stop),
        lane(relay.clone(), Channel::Invitation, &stop),
        lane(relay.clone(), Channel::Webhook, &stop),
        stop.run_until_cancelled(looking_after(relay.notify))
    );
}

/// Messages that are being sent: each with the attempt that has it.
type Held = Arc<Mutex<HashMap<DeliveryId, i32>>>;

const fn at_once(channel: Channel) -> usize {
    match channel {
        Channel::Mail => MAILS_AT_ONCE,
        Channel::Invitation => INVITATIONS_AT_ONCE,
        Channel::Webhook => WEBHOOKS_AT_ONCE,
    }
}

async fn lane(relay: Relay, channel: Channel, stop: &CancellationToken) {
    let mut wakes = relay.notify.wake.as_ref().map(Wake::subscribe);
    let mut running = JoinSet::new();
    let held = Held::default();
    while !stop.is_cancelled() {
        while running.try_join_next().is_some() {}
        let free = at_once(channel).saturating_sub(running.len());
        if free > 0 {
            match sending::take(&relay, channel, free).await {
                Ok(taken) => {
                    for one in taken {
                        let (relay, held, id) = (relay.clone(), held.clone(), one.id);
                        held.lock().unwrap_or_else(PoisonError::into_inner).insert(id, one.attempts);
                        running.spawn(async move {
                            send_one(&relay, channel, one).await;
                            held.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
                        });
                    }
                }
                Err(failure) => {
                    tracing::warn!(channel = channel.name(), error = ?failure, "messages could not be leased; retrying");
                    tokio::time::sleep(POLL_EVERY).await;
                }
            }
        }
        let full = running.len() >= at_once(channel);
        tokio::select! {
            () = stop.cancelled() => {}
            _ = running.join_next(), if !running.is_empty() => {}
            () = wait_for_work(&mut wakes), if !full => {}
        }
    }
    let drained = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_WITHIN, drained).await.is_err() {
        running.shutdown().await;
        let held = std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner));
        tracing::warn!(
            channel = channel.name(),
            count = held.len(),
            "messages were not sent in time and will be retried"
        );
        if let Err(failure) = sending::leases_release(&relay, held).await {
            tracing::warn!(error = ?failure, "messages could not be requeued; their leases expire");
        }
    }
}

/// Until there may be something to send.
async fn wait_for_work(wakes: &mut Option<tokio::sync::broadcast::Receiver<pg::Notice>>) {
    match wakes {
        Some(wakes) => Wake::wait(wakes, CHANNEL, POLL_EVERY).await,
        None => tokio::time::sleep(POLL_EVERY).await,
    }
}

/// What goes wrong here is about our own database: the message comes again when its lease is over.
async fn send_one(relay: &Relay, channel: Channel, taken: LeasedDelivery) {
    let id = taken.id;
    let sent = tokio::time::timeout(PATIENCE, Box::pin(sending::send(relay, channel, taken))).await;
    match sent {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => tracing::warn!(delivery_id = %id, error = ?failure, "a message will be retried"),
        Err(_) => tracing::warn!(delivery_id = %id, "a message timed out and will be retried"),
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
    let mut tick = tokio::time::interval_at(Instant::now() + UPKEEP_INTERVAL, UPKEEP_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(failure) = queues_maintain(&notify).await {
            tracing::warn!(error = ?failure, "upkeep of the message queue failed; retrying");
        }
    }
}
