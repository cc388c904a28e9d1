//! `/orgs/{org_id}/webhooks`: where an organization is told of events.

use endpoint::{
    Accepted, Created, Empty, Endpoint, Given, In, Json, NoContent, OrgPath, ScopeKind, Sse, Write, delete,
    get, patch, post,
};
use kernel::{
    Code, Failure, Page, PageQuery, Permission,
    ids::{OrgId, WebhookId},
    secret::ShownOnce,
    text::Name,
};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Notify,
    model::{delivery::Delivery, webhook::Webhook},
    service::{
        listening,
        webhooks::{
            NewWebhook, WebhookChange, webhook_create, webhook_delete, webhook_delivery_list, webhook_get,
            webhook_list, webhook_listener_create, webhook_rotate_secret, webhook_test, webhook_update,
        },
    },
};

const ALL: &str = "/api/v1/orgs/{org_id}/webhooks";
const ONE: &str = "/api/v1/orgs/{org_id}/webhooks/{webhook_id}";

pub fn endpoints(notify: &Notify) -> Vec<Endpoint> {
    let mut endpoints = resource(notify);
    endpoints.extend(listeners(notify));
    endpoints.extend([
        post(
            "/api/v1/orgs/{org_id}/webhooks/{webhook_id}/rotate-secret",
            "webhook_rotate_secret",
            "Replace the secret of a webhook",
        )
        .describe(
            "The response contains the new secret, which is shown only once. For a day, messages carry two \
             signatures, one with each secret.",
        )
        .in_scope(ScopeKind::Org)
        .needs(Permission::WebhookManage)
        .audited("webhook.rotate_secret")
        .handle(notify.clone(), rotate),
        post(
            "/api/v1/orgs/{org_id}/webhooks/{webhook_id}/test",
            "webhook_test",
            "Send a test event to a webhook",
        )
        .in_scope(ScopeKind::Org)
        .errors(&[Code::InvalidTransition, Code::QuotaExceeded])
        .needs(Permission::WebhookManage)
        .audited("webhook.test")
        .handle(notify.clone(), test),
        get(
            "/api/v1/orgs/{org_id}/webhooks/{webhook_id}/deliveries",
            "webhook_delivery_list",
            "List the deliveries of a webhook",
        )
        .describe("Newest first, for 30 days.")
        .in_scope(ScopeKind::Org)
        .needs(Permission::WebhookRead)
        .handle(notify.clone(), deliveries),
    ]);
    endpoints
}

/// Webhooks whose messages are fetched.
fn listeners(notify: &Notify) -> Vec<Endpoint> {
    vec![
        post(
            "/api/v1/orgs/{org_id}/webhooks/listeners",
            "webhook_listener_create",
            "Create a temporary webhook whose messages are streamed",
        )
        .describe(
            "For trying webhooks on a machine that the server cannot reach: nothing is sent to a URL, the messages are \
             streamed by `webhook_listener_stream`. The response contains the secret that they are signed with, which \
             is shown only once. The webhook is deleted two minutes after the last stream ended; `listens_until` says \
             when.",
        )
        .in_scope(ScopeKind::Org)
        .errors(&[Code::QuotaExceeded])
        .needs(Permission::WebhookManage)
        .audited("webhook.create")
        .handle(notify.clone(), listener_create),
        get(
            "/api/v1/orgs/{org_id}/webhooks/{webhook_id}/stream",
            "webhook_listener_stream",
            "Stream the messages of a temporary webhook",
        )
        .describe(
            "Server-sent events named `delivery`, each with `id`, `event_type`, `created_at`, `headers` (a list of \
             names and values) and `body`: what a delivery would consist of, at least once. The server ends the stream \
             after some minutes: reconnect.",
        )
        .in_scope(ScopeKind::Org)
        .errors(&[Code::InvalidTransition, Code::RateLimitExceeded])
        .needs(Permission::WebhookManage)
        .handle(notify.clone(), listener_stream),
    ]
}

fn resource(notify: &Notify) -> Vec<Endpoint> {
    vec![
        get(ALL, "webhook_list", "List the webhooks of an organization")
            .in_scope(ScopeKind::Org)
            .needs(Permission::WebhookRead)
            .handle(notify.clone(), list),
        post(ALL, "webhook_create", "Create a webhook")
            .describe(
                "Events are sent as JSON with POST, at least once, each signed: `GPUaaS-Signature: t=<seconds>,v1=<hex>` \
                 is an HMAC-SHA256 with the secret over `<seconds>.<body>`. The response contains the \
                 secret, which is shown only once. The URL must be https and resolve to a public address; \
                 redirects are not followed. A delivery without a 2xx response is retried with backoff for a \
                 day; after a day without success the webhook is \
                 disabled.",
            )
            .in_scope(ScopeKind::Org)
            .errors(&[Code::AlreadyExists, Code::QuotaExceeded])
            .needs(Permission::WebhookManage)
            .audited("webhook.create")
            .handle(notify.clone(), create),
        get(ONE, "webhook_get", "Show a webhook")
            .in_scope(ScopeKind::Org)
            .needs(Permission::WebhookRead)
            .handle(notify.clone(), show),
        patch(ONE, "webhook_update", "Change, disable or enable a webhook")
            .in_scope(ScopeKind::Org)
            .errors(&[Code::AlreadyExists, Code::Conflict])
            .needs(Permission::WebhookManage)
            .audited("webhook.update")
            .handle(notify.clone(), update),
        delete(ONE, "webhook_delete", "Delete a webhook and its pending deliveries")
            .in_scope(ScopeKind::Org)
            .errors(&[Code::Conflict])
            .needs(Permission::WebhookManage)
            .audited("webhook.delete")
            .handle(notify.clone(), remove),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct WebhookPath {
    #[allow(dead_code, reason = "the pipeline has resolved it; the document shows it")]
    org_id: OrgId,
    webhook_id: WebhookId,
}

async fn list(
    _: Notify,
    mut tx: ReadTx,
    input: In<OrgPath, PageQuery, ()>,
) -> Result<Json<Page<Webhook>>, Failure> {
    Ok(Json(webhook_list(&mut tx, input.access.org()?, &input.query).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WebhookCreate {
    name: Name,
    #[schemars(length(min = 1, max = 2048))]
    url: String,
    /// Types of events such as `billing.low_balance_warning`; all when there are none.
    #[serde(default)]
    #[schemars(length(max = 100))]
    event_types: Vec<String>,
}

/// A webhook with its secret.
#[derive(Serialize, JsonSchema)]
struct WebhookWithSecret {
    #[serde(flatten)]
    webhook: Webhook,
    secret: ShownOnce,
}

async fn create(
    notify: Notify,
    mut tx: Write,
    input: In<OrgPath, Empty, Json<WebhookCreate>>,
) -> Result<Created<WebhookWithSecret>, Failure> {
    let (org, body) = (input.access.org()?, input.body.0);
    let new = NewWebhook { name: body.name, url: body.url, event_types: body.event_types };
    let (webhook, secret) = webhook_create(&notify, &mut tx, org, new).await?;
    Ok(Created(WebhookWithSecret { webhook, secret: ShownOnce::new(secret) }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WebhookListenerCreate {
    /// Types of events such as `billing.low_balance_warning`; all when there are none.
    #[serde(default)]
    #[schemars(length(max = 100))]
    event_types: Vec<String>,
}

async fn listener_create(
    notify: Notify,
    mut tx: Write,
    input: In<OrgPath, Empty, Json<WebhookListenerCreate>>,
) -> Result<Created<WebhookWithSecret>, Failure> {
    let org = input.access.org()?;
    let (webhook, secret) = webhook_listener_create(&notify, &mut tx, org, input.body.0.event_types).await?;
    Ok(Created(WebhookWithSecret { webhook, secret: ShownOnce::new(secret) }))
}

async fn listener_stream(
    notify: Notify,
    tx: ReadTx,
    input: In<WebhookPath, Empty, ()>,
) -> Result<Sse, Failure> {
    listening::follow(&notify, tx, input.access.org()?, input.path.webhook_id).await
}

async fn show(
    _: Notify,
    mut tx: ReadTx,
    input: In<WebhookPath, Empty, ()>,
) -> Result<Json<Webhook>, Failure> {
    Ok(Json(webhook_get(&mut tx, input.access.org()?, input.path.webhook_id).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WebhookUpdate {
    #[serde(default)]
    name: Given<Name>,
    #[serde(default)]
    #[schemars(length(min = 1, max = 2048))]
    url: Given<String>,
    #[serde(default)]
    #[schemars(length(max = 100))]
    event_types: Given<Vec<String>>,
    #[serde(default)]
    enabled: Given<bool>,
}

async fn update(
    notify: Notify,
    mut tx: Write,
    input: In<WebhookPath, Empty, Json<WebhookUpdate>>,
) -> Result<Json<Webhook>, Failure> {
    let place = (input.access.org()?, input.path.webhook_id);
    let body = input.body.0;
    let change = WebhookChange {
        name: body.name.0,
        url: body.url.0,
        event_types: body.event_types.0,
        enabled: body.enabled.0,
    };
    Ok(Json(webhook_update(&notify, &mut tx, place, change, input.if_match).await?))
}

async fn remove(_: Notify, mut tx: Write, input: In<WebhookPath, Empty, ()>) -> Result<NoContent, Failure> {
    webhook_delete(&mut tx, input.access.org()?, input.path.webhook_id, input.if_match).await?;
    Ok(NoContent)
}

async fn rotate(
    notify: Notify,
    mut tx: Write,
    input: In<WebhookPath, Empty, ()>,
) -> Result<Json<WebhookWithSecret>, Failure> {
    let org = input.access.org()?;
    let (webhook, secret) = webhook_rotate_secret(&notify, &mut tx, org, input.path.webhook_id).await?;
    Ok(Json(WebhookWithSecret { webhook, secret: ShownOnce::new(secret) }))
}

async fn test(
    notify: Notify,
    mut tx: Write,
    input: In<WebhookPath, Empty, ()>,
) -> Result<Accepted<Delivery>, Failure> {
    Ok(Accepted(webhook_test(&notify, &mut tx, input.access.org()?, input.path.webhook_id).await?))
}

async fn deliveries(
    _: Notify,
    mut tx: ReadTx,
    input: In<WebhookPath, PageQuery, ()>,
) -> Result<Json<Page<Delivery>>, Failure> {
    let org = input.access.org()?;
    Ok(Json(webhook_delivery_list(&mut tx, org, input.path.webhook_id, &input.query).await?))
}
