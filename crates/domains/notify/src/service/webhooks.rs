//! Outgoing webhooks.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, Page, PageQuery, Problem, Secret,
    ids::{DeliveryId, EventId, OrgId, WebhookId},
    text::Name,
};
use pg::{ReadTx, WriteTx, changed, created, found, removed};
use serde_json::json;

use super::notifying::queue_full;
use crate::{
    Notify,
    model::{
        address::check_url,
        delivery::Delivery,
        events::WEBHOOK_TEST,
        signature::new_secret,
        webhook::{
            LISTENER_KEPT, LISTENER_URL, MOST_WEBHOOKS, OVERLAP, Webhook, WebhookBody, WebhookState,
            bound_to, check_event_types,
        },
    },
    store,
};

pub struct NewWebhook {
    pub name: Name,
    pub url: String,
    pub event_types: Vec<String>,
}

fn sealed(notify: &Notify, id: WebhookId, secret: &Secret<String>) -> Result<Vec<u8>, Failure> {
    let text = secret.expose().as_bytes();
    Ok(notify.settings.sealer.seal(notify.db.ambient(), &bound_to(id), text)?)
}

/// Returns the webhook and its secret, which nobody can read again.
pub async fn webhook_create(
    notify: &Notify,
    tx: &mut WriteTx,
    org: OrgId,
    new: NewWebhook,
) -> Result<(Webhook, Secret<String>), Failure> {
    let url = check_url(&new.url, notify.settings.private_webhooks)?;
    let id = tx.db().ambient().id::<WebhookId>();
    let new = NewWebhook { url: url.into(), ..new };
    webhook_insert(notify, tx, (org, id), new, None).await
}

/// A webhook whose messages are fetched: see [`super::listening`].
pub async fn webhook_listener_create(
    notify: &Notify,
    tx: &mut WriteTx,
    org: OrgId,
    event_types: Vec<String>,
) -> Result<(Webhook, Secret<String>), Failure> {
    let id = tx.db().ambient().id::<WebhookId>();
    let id_text = id.to_string();
    let tail = id_text.get(id_text.len().saturating_sub(8)..).unwrap_or_default();
    let name = Name::parse(format!("listener {tail}"))
        .map_err(|why| Failure::bug(format!("the name of a listener is refused: {why}")))?;
    let listens_until = tx.db().ambient().now() + LISTENER_KEPT;
    let new = NewWebhook { name, url: LISTENER_URL.to_owned(), event_types };
    webhook_insert(notify, tx, (org, id), new, Some(listens_until)).await
}

async fn webhook_insert(
    notify: &Notify,
    tx: &mut WriteTx,
    (org, id): (OrgId, WebhookId),
    new: NewWebhook,
    listens_until: Option<DateTime<Utc>>,
) -> Result<(Webhook, Secret<String>), Failure> {
    let event_types = check_event_types(new.event_types)?;
    let now = tx.db().ambient().now();
    if store::webhooks::lock_count(tx.conn(), org).await? >= MOST_WEBHOOKS {
        let text = format!("The maximum number of webhooks ({MOST_WEBHOOKS}) is reached.");
        return Err(Problem::new(Code::QuotaExceeded, text).suggest("Delete an unused webhook.").into());
    }
    let secret = new_secret(tx.db().ambient());
    let sealed = sealed(notify, id, &secret)?;
    let (name, url) = (new.name.as_str(), new.url.as_str());
    let new = store::webhooks::New {
        id,
        org,
        name,
        url,
        event_types: &event_types,
        secret: &sealed,
        listens_until,
    };
    let webhook = store::webhooks::insert(tx.conn(), &new, now).await?;
    created(tx, "webhook", id, &webhook)?;
    Ok((webhook, secret))
}

pub async fn webhook_get(tx: &mut ReadTx, org: OrgId, id: WebhookId) -> Result<Webhook, Failure> {
    Ok(found(store::webhooks::get(tx.conn(), org, id).await?, "webhook")?)
}

pub async fn webhook_list(tx: &mut ReadTx, org: OrgId, page: &PageQuery) -> Result<Page<Webhook>, Failure> {
    let webhooks = store::webhooks::list(tx.conn(), org, page).await?;
    Ok(page.page(webhooks, |webhook| webhook.id.uuid()))
}

#[derive(Default)]
pub struct WebhookChange {
    pub name: Option<Name>,
    pub url: Option<String>,
    pub event_types: Option<Vec<String>>,
    pub enabled: Option<bool>,
}

pub async fn webhook_update(
    notify: &Notify,
    tx: &mut WriteTx,
    (org, id): (OrgId, WebhookId),
    change: WebhookChange,
    if_match: Option<i64>,
) -> Result<Webhook, Failure> {
    let url = change.url.map(|url| check_url(&url, notify.settings.private_webhooks)).transpose()?;
    let event_types = change.event_types.map(check_event_types).transpose()?;
    let now = tx.db().ambient().now();
    let before = found(store::webhooks::lock(tx.conn(), org, id).await?, "webhook")?;
    let mut wanted = before.clone();
    if let Some(name) = change.name {
        wanted.name = name.into_string();
    }
    if url.is_some() && before.listens_until.is_some() {
        return Err(Problem::field("url", "a listener has no URL of its own").into());
    }
    if let Some(url) = url {
        wanted.url = url.into();
    }
    if let Some(types) = event_types {
        wanted.event_types = types;
    }
    match change.enabled {
        Some(true) => (wanted.state, wanted.disabled_reason) = (WebhookState::Active, None),
        Some(false) if before.state == WebhookState::Active => {
            wanted.state = WebhookState::Disabled;
            wanted.disabled_reason = Some("Disabled by the organization.".to_owned());
        }
        _ => {}
    }
    let swap = store::webhooks::update(tx.conn(), org, &wanted, if_match, now).await?;
    let after = swap.or_problem("webhook")?;
    changed(tx, "webhook", id, &before, &after)?;
    Ok(after)
}

/// The secret so far is used as well for a day, so that the receiver can change over.
pub async fn webhook_rotate_secret(
    notify: &Notify,
    tx: &mut WriteTx,
    org: OrgId,
    id: WebhookId,
) -> Result<(Webhook, Secret<String>), Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::webhooks::lock(tx.conn(), org, id).await?, "webhook")?;
    let secret = new_secret(tx.db().ambient());
    let sealed = sealed(notify, id, &secret)?;
    let rotated = store::webhooks::rotate(tx.conn(), org, id, &sealed, now + OVERLAP, now).await?;
    let after = found(rotated, "webhook")?;
    changed(tx, "webhook", id, &before, &after)?;
    Ok((after, secret))
}

pub async fn webhook_delete(
    tx: &mut WriteTx,
    org: OrgId,
    id: WebhookId,
    if_match: Option<i64>,
) -> Result<(), Failure> {
    let before = found(store::webhooks::lock(tx.conn(), org, id).await?, "webhook")?;
    if if_match.is_some_and(|expected| expected != before.version) {
        return Err(Problem::version_conflict(before.version).into());
    }
    store::webhooks::delete(tx.conn(), org, id).await?;
    removed(tx, "webhook", id, &before)
}

/// Sends an event that says nothing, also to a webhook that wants only some.
pub async fn webhook_test(
    notify: &Notify,
    tx: &mut WriteTx,
    org: OrgId,
    id: WebhookId,
) -> Result<Delivery, Failure> {
    let ambient = tx.db().ambient().clone();
    let webhook = found(store::webhooks::lock(tx.conn(), org, id).await?, "webhook")?;
    if webhook.state != WebhookState::Active {
        let problem = Problem::new(Code::InvalidTransition, "The webhook is disabled.");
        return Err(problem.suggest("Enable it first.").into());
    }
    if let Some(most) = queue_full(notify, tx, org).await? {
        let text = format!("The webhook queue of the organization is full ({most} messages).");
        let ask = "Wait until messages are sent, or delete a webhook that does not respond.";
        return Err(Problem::new(Code::QuotaExceeded, text).suggest(ask).into());
    }
    let body = WebhookBody {
        id: ambient.id::<EventId>(),
        event_type: WEBHOOK_TEST.to_owned(),
        created_at: ambient.now(),
        org_id: org,
        project_id: None,
        data: json!({ "webhook_id": id }),
    };
    let delivery = ambient.id::<DeliveryId>();
    let content = serde_json::to_string(&body)?;
    store::deliveries::insert_hooks(tx.conn(), &body, &content, &[(delivery, id)], ambient.now()).await?;
    let queued = found(store::deliveries::get(tx.conn(), delivery).await?, "delivery")?;
    created(tx, "delivery", delivery, &queued)?;
    Ok(queued)
}

pub async fn webhook_delivery_list(
    tx: &mut ReadTx,
    org: OrgId,
    id: WebhookId,
    page: &PageQuery,
) -> Result<Page<Delivery>, Failure> {
    found(store::webhooks::get(tx.conn(), org, id).await?, "webhook")?;
    let deliveries = store::deliveries::of_webhook(tx.conn(), org, id, page).await?;
    Ok(page.page(deliveries, |delivery| delivery.id.uuid()))
}
