//! One message at a time: sending it, and writing down what became of it.
//!
//! At least once: a process that dies between the two sends the message again. Mail then has the same Message-ID, and
//! a webhook the same event id.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use events::identity::InvitationCreated;
use identity::api::org_recipients;
use kernel::{
    CorrelationId, Event as _, Failure,
    ids::{DeliveryId, WebhookId},
};
use pg::{Origin, Permit};
use uuid::Uuid;

use super::{invitations, mail::chain, notifying::people_notify};
use crate::{
    Notify, Relay,
    model::{
        backoff::next_attempt,
        delivery::{Channel, DeliveryState, LeasedDelivery, Outcome},
        notice::{Notice, NoticeKind, ResourceKind, Target},
        signature,
        webhook::{DISABLED_AFTER, Destination, bound_to},
    },
    store,
};

/// Longer than any attempt takes.
const LEASE: TimeDelta = TimeDelta::seconds(120);
pub(super) const UPKEEP: &str = "send messages";

/// Takes up to `limit` messages that are due.
pub async fn take(relay: &Relay, channel: Channel, limit: usize) -> Result<Vec<LeasedDelivery>, Failure> {
    if channel != Channel::Webhook && relay.notify.settings.smtp.is_none() {
        // They wait until there is a mail server, or are given up by whoever has one.
        return Ok(Vec::new());
    }
    let now = relay.notify.db.ambient().now();
    let mut upkeep = relay.notify.db.upkeep(UPKEEP).await?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Ok(match channel {
        Channel::Mail | Channel::Invitation => {
            store::relay::take_mails(upkeep.conn(), channel, limit, now, LEASE).await?
        }
        Channel::Webhook => store::relay::take_webhooks(upkeep.conn(), limit, now, LEASE).await?,
    })
}

/// Releases the leases of interrupted attempts. Their result is unknown: the messages are sent again.
pub async fn leases_release(relay: &Relay, leased: HashMap<DeliveryId, i32>) -> Result<(), Failure> {
    let now = relay.notify.db.ambient().now();
    let mut upkeep = relay.notify.db.upkeep(UPKEEP).await?;
    let (ids, attempts): (Vec<Uuid>, Vec<i32>) = leased.into_iter().map(|(id, n)| (id.uuid(), n)).unzip();
    Ok(store::relay::leases_release(upkeep.conn(), &ids, &attempts, now).await?)
}

/// Sends a message that was taken.
pub async fn send(relay: &Relay, channel: Channel, taken: LeasedDelivery) -> Result<(), Failure> {
    let outcome = match channel {
        Channel::Invitation => invitations::send(relay, &taken).await?,
        // The release before queues invitations as mail.
        Channel::Mail if taken.event_type == InvitationCreated::TYPE => {
            invitations::send(relay, &taken).await?
        }
        Channel::Mail => relay.mailer.send(&relay.notify.settings, &taken).await,
        Channel::Webhook => to_webhook(relay, &taken).await?,
    };
    let name = match &outcome {
        Outcome::Arrived => "sent",
        Outcome::NotNow(_) => "not_now",
        Outcome::Never(_) => "refused",
    };
    metrics::counter!("notify_attempts_total", "channel" => channel.name(), "outcome" => name).increment(1);
    settle(relay, channel, &taken, &outcome).await?;
    match taken.webhook_id {
        Some(webhook) => count(relay, webhook, &outcome).await,
        None => Ok(()),
    }
}

async fn settle(
    relay: &Relay,
    channel: Channel,
    taken: &LeasedDelivery,
    outcome: &Outcome,
) -> Result<(), Failure> {
    let ambient = relay.notify.db.ambient();
    let now = ambient.now();
    let mut upkeep = relay.notify.db.upkeep(UPKEEP).await?;
    let given_up = match outcome {
        Outcome::Arrived => {
            store::relay::finish(upkeep.conn(), taken, DeliveryState::Sent, None, now).await?;
            return Ok(());
        }
        Outcome::NotNow(error) => {
            let random = u32::from_le_bytes(ambient.bytes());
            match next_attempt(taken.queued_at, now, taken.attempts, random) {
                Some(next) => return Ok(store::relay::postpone(upkeep.conn(), taken, error, next).await?),
                None => error,
            }
        }
        Outcome::Never(error) => error,
    };
    if store::relay::finish(upkeep.conn(), taken, DeliveryState::Failed, Some(given_up), now).await? {
        metrics::counter!("notify_given_up_total", "channel" => channel.name()).increment(1);
        tracing::warn!(
            delivery_id = %taken.id,
            channel = channel.name(),
            attempts = taken.attempts,
            error = given_up,
            "a message was abandoned"
        );
    }
    Ok(())
}

async fn to_webhook(relay: &Relay, taken: &LeasedDelivery) -> Result<Outcome, Failure> {
    let mut upkeep = relay.notify.db.upkeep(UPKEEP).await?;
    let found = match taken.webhook_id {
        Some(id) => store::webhooks::destination(upkeep.conn(), id).await?,
        None => None,
    };
    drop(upkeep);
    let Some(destination) = found else { return Ok(Outcome::Never("the webhook was deleted".to_owned())) };
    if !destination.active {
        return Ok(Outcome::Never("the webhook is disabled".to_owned()));
    }
    Ok(post(relay, &destination, taken).await)
}

async fn post(relay: &Relay, destination: &Destination, taken: &LeasedDelivery) -> Outcome {
    let now = relay.notify.db.ambient().now();
    let Ok(secrets) = secrets(&relay.notify, destination, now) else {
        return Outcome::NotNow("the webhook's secret cannot be decrypted with this master key".to_owned());
    };
    let request = match relay.http.post(&destination.url) {
        Ok(request) => request,
        Err(problem) => return Outcome::NotNow(problem.message.into_owned()),
    };
    let request = request
        .header("Content-Type", "application/json")
        .header(signature::HEADER, signature::sign(&secrets, now, taken.content.as_bytes()))
        .header("GPUaaS-Delivery", taken.id.to_string())
        .body(taken.content.clone());
    match request.send().await {
        // What it answers beyond that is not read.
        Ok(answer) if answer.status().is_success() => Outcome::Arrived,
        Ok(answer) if answer.status().is_redirection() => {
            Outcome::NotNow(format!("answered {}; redirects are not followed", answer.status().as_u16()))
        }
        Ok(answer) => Outcome::NotNow(format!("answered {}", answer.status().as_u16())),
        // Without the URL: it may hold a secret.
        Err(error) => Outcome::NotNow(chain(&error.without_url())),
    }
}

pub(super) fn secrets(
    notify: &Notify,
    destination: &Destination,
    now: DateTime<Utc>,
) -> Result<Vec<kernel::Secret<Vec<u8>>>, trust::SealError> {
    let bound = bound_to(destination.id);
    let previous = destination.previous_secret.iter().filter(|_| destination.previous_until > Some(now));
    let sealed = std::iter::once(&destination.secret).chain(previous);
    sealed.map(|secret| notify.settings.sealer.open(&bound, secret)).collect()
}

/// Whether a webhook works. One that did not for a day is disabled, and its organization told.
async fn count(relay: &Relay, id: WebhookId, outcome: &Outcome) -> Result<(), Failure> {
    let now = relay.notify.db.ambient().now();
    let mut upkeep = relay.notify.db.upkeep(UPKEEP).await?;
    if *outcome == Outcome::Arrived {
        return Ok(store::webhooks::succeeded(upkeep.conn(), id, now).await?);
    }
    let since = store::webhooks::failed(upkeep.conn(), id, now).await?;
    let destination = store::webhooks::destination(upkeep.conn(), id).await?;
    drop(upkeep);
    match (since, destination) {
        (Some(since), Some(destination)) if since <= now - DISABLED_AFTER => {
            disable(relay, &destination, now).await
        }
        _ => Ok(()),
    }
}

async fn disable(relay: &Relay, webhook: &Destination, now: DateTime<Utc>) -> Result<(), Failure> {
    let ambient = relay.notify.db.ambient();
    let origin = Origin::internal(CorrelationId(ambient.uuid()));
    let permit = Permit::system("disable a webhook that failed for a day", origin);
    let mut tx = relay.notify.db.write(permit, "webhook.disable").await?;
    tx.audit_in_org(webhook.org_id);
    let reason = "All deliveries failed for 24 hours.";
    let failing_before = now - DISABLED_AFTER;
    if !store::webhooks::disable(tx.conn(), webhook.id, reason, failing_before, now).await? {
        return Ok(());
    }
    tx.record("webhook", webhook.id, None::<&()>, None::<&()>)?;
    let text = format!(
        "All deliveries to the webhook {} failed for 24 hours, so it was disabled. Enable it when its \
         receiver works again; missed events are in its list of deliveries.",
        webhook.name
    );
    let target = Target::of_org(webhook.org_id).with(ResourceKind::Webhook, webhook.id);
    let notice =
        Notice { kind: NoticeKind::WebhookDisabled, title: "Webhook disabled".to_owned(), text, target };
    let people = org_recipients(tx.conn(), webhook.org_id, &[]).await?;
    let event = (ambient.uuid(), "webhook.disabled");
    people_notify(&relay.notify, &mut tx, event, &notice, people).await?;
    tx.commit(None).await?;
    Ok(())
}
