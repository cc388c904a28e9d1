//! Listeners: webhooks whose messages are fetched through the API instead of being sent, so that somebody can try
//! webhooks on a machine that the server cannot reach (`gpuaas webhooks listen`).
//!
//! A listener is a row of `webhooks` with `listens_until`. Its messages are queued as those of any webhook, but the relay
//! never finds them due; the stream signs and carries them exactly as a delivery would. At least once: a message counts as
//! delivered when the next one is read, so one that the connection lost is streamed again. While a stream is open it
//! moves `listens_until` on; once nobody has listened for that long, the listener gets nothing more and is deleted.

use std::{collections::VecDeque, time::Duration};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use endpoint::{SourceState, Sse, SseFrame, StreamSource, Streams};
use kernel::{
    Code, CorrelationId, Failure, Problem,
    ids::{DeliveryId, OrgId, WebhookId},
};
use pg::{Origin, Permit, ReadTx, Watch, found};
use serde::Serialize;
use tokio::time::Instant;

use super::sending::secrets;
use crate::{
    CHANNEL, Notify,
    model::{delivery::Channel, signature, webhook::LISTENER_KEPT},
    store::{self, listeners::Waiting},
};

/// A message whose wake-up was lost is found after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const BATCH: i64 = 50;
/// Of one listener: one that broke off may not have ended yet.
const MOST_STREAMS_OF_ONE: usize = 2;
const UPKEEP: &str = "carry messages to a listener";
/// So many expired listeners are deleted at a time.
const MOST_EXPIRED: i64 = 100;

/// The streams of listeners that are open.
pub(crate) fn streams() -> Streams {
    let suggestion = "Close the other stream of this listener, or create another listener.";
    Streams::new(MOST_STREAMS_OF_ONE, ("The listener is being listened to.", suggestion))
}

/// A message as the stream carries it: what a delivery would consist of.
#[derive(Serialize)]
struct ListenerMessage {
    id: DeliveryId,
    event_type: String,
    created_at: DateTime<Utc>,
    headers: Vec<(&'static str, String)>,
    /// The exact bytes that are signed.
    body: String,
}

/// Where the stream of one listener has come to.
struct ListenerSource {
    notify: Notify,
    org: OrgId,
    id: WebhookId,
    /// Streamed, and not yet recorded as delivered.
    carried: Vec<DeliveryId>,
    watch: Watch,
}

/// The messages of a listener that wait, then each as it is queued.
pub async fn follow(notify: &Notify, mut tx: ReadTx, org: OrgId, id: WebhookId) -> Result<Sse, Failure> {
    let webhook = found(store::webhooks::get(tx.conn(), org, id).await?, "webhook")?;
    drop(tx);
    if webhook.listens_until.is_none() {
        let text = "Messages of this webhook are sent to its URL and cannot be fetched.";
        let problem = Problem::new(Code::InvalidTransition, text);
        return Err(problem.suggest("Create a listener, and stream the messages of that.").into());
    }
    let guard = notify.listener_streams.stream_open(id.uuid())?;
    let watch = Watch::new(notify.wake.as_ref(), CHANNEL, Channel::Webhook.to_string(), LOOK_AGAIN);
    Ok(endpoint::follow(
        guard,
        ListenerSource { notify: notify.clone(), org, id, carried: Vec::new(), watch },
    ))
}

#[async_trait]
impl StreamSource for ListenerSource {
    async fn read_new(&mut self, frames: &mut VecDeque<SseFrame>) -> Result<SourceState, Failure> {
        let now = self.notify.db.ambient().now();
        let mut upkeep = self.notify.db.upkeep(UPKEEP).await?;
        store::listeners::delivered(upkeep.conn(), self.id, &self.carried, now).await?;
        self.carried.clear();
        if !store::listeners::listening_extend(upkeep.conn(), self.org, self.id, now + LISTENER_KEPT).await? {
            return Ok(SourceState::Ended);
        }
        let waiting = store::listeners::waiting(upkeep.conn(), self.id, BATCH).await?;
        if waiting.is_empty() {
            return Ok(SourceState::Idle);
        }
        let destination = store::webhooks::destination(upkeep.conn(), self.id).await?;
        drop(upkeep);
        let Some(destination) = destination else { return Ok(SourceState::Ended) };
        let secrets = secrets(&self.notify, &destination, now)?;
        for Waiting { id, event_type, content, created_at } in waiting {
            let headers = vec![
                ("Content-Type", "application/json".to_owned()),
                (signature::HEADER, signature::sign(&secrets, now, content.as_bytes())),
                ("GPUaaS-Delivery", DeliveryId::from(id).to_string()),
            ];
            let message = ListenerMessage { id: id.into(), event_type, created_at, headers, body: content };
            frames.push_back(SseFrame::state("delivery", &message)?);
            self.carried.push(message.id);
        }
        Ok(SourceState::New)
    }

    async fn wait(&mut self, deadline: Instant) {
        self.watch.wait_for_change(deadline).await;
    }
}

/// Deletes listeners that nobody has listened to.
pub async fn listeners_expire(notify: &Notify) -> Result<(), Failure> {
    let ambient = notify.db.ambient();
    let mut upkeep = notify.db.upkeep("find listeners that nobody listens to").await?;
    let expired = store::listeners::expired(upkeep.conn(), ambient.now(), MOST_EXPIRED).await?;
    drop(upkeep);
    for (org, id) in expired {
        let origin = Origin::internal(CorrelationId(ambient.uuid()));
        let permit = Permit::system("nobody listens any more", origin);
        let mut tx = notify.db.write(permit, "webhook.expire").await?;
        tx.audit_in_org(org);
        let before = store::webhooks::lock(tx.conn(), org, id).await?;
        // Somebody came back, or deleted it.
        let Some(before) = before.filter(|before| before.listens_until < Some(ambient.now())) else {
            tx.roll_back().await;
            continue;
        };
        store::webhooks::delete(tx.conn(), org, id).await?;
        pg::removed(&mut tx, "webhook", id, &before)?;
        tx.commit(None).await?;
    }
    Ok(())
}
