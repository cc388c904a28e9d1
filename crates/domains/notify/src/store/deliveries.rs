//! Messages: making them, and what operators and tenants see of them.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{DeliveryId, OrgId, UserId, WebhookId},
};
use lifecycle::Named as _;
use pg::Connection;
use uuid::Uuid;

use crate::model::{
    delivery::{Channel, Delivery, DeliveryState},
    webhook::WebhookBody,
};

/// A mail to somebody.
pub struct Mail {
    pub id: DeliveryId,
    pub person: UserId,
    pub address: String,
    pub content: String,
}

pub async fn insert_mails(
    conn: &mut Connection,
    (event, event_type, org): (Uuid, &str, Option<OrgId>),
    mails: &[Mail],
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO deliveries (id, channel, state, event_id, event_type, org_id, person_id, address, content,
             next_attempt_at, queued_at, created_at)
         SELECT m.id, 'mail', 'queued', $1, $2, $3, m.person, m.address, m.content, $8, $8, $8
         FROM unnest($4::uuid[], $5::uuid[], $6::text[], $7::text[]) AS m (id, person, address, content)
         ON CONFLICT DO NOTHING",
        event,
        event_type,
        org.map(|org| org.uuid()) as Option<Uuid>,
        &mails.iter().map(|mail| mail.id.uuid()).collect::<Vec<_>>(),
        &mails.iter().map(|mail| mail.person.uuid()).collect::<Vec<_>>(),
        &mails.iter().map(|mail| mail.address.clone()).collect::<Vec<_>>(),
        &mails.iter().map(|mail| mail.content.clone()).collect::<Vec<_>>(),
        now,
    )
    .execute(&mut *conn)
    .await?;
    wake(conn, Channel::Mail).await
}

/// A mail that invites, to an address that need not belong to anybody.
pub async fn insert_invitation(
    conn: &mut Connection,
    (event, event_type, org): (Uuid, &str, OrgId),
    (id, address, content): (DeliveryId, &str, &str),
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO deliveries (id, channel, state, event_id, event_type, org_id, address, content, next_attempt_at,
             queued_at, created_at)
         VALUES ($1, 'invitation', 'queued', $2, $3, $4, $5, $6, $7, $7, $7)",
        id.uuid(),
        event,
        event_type,
        org.uuid(),
        address,
        content,
        now,
    )
    .execute(&mut *conn)
    .await?;
    wake(conn, Channel::Invitation).await
}

/// To these webhooks, each once for each event. What is for a listener is fetched by it; the relay never finds it due.
pub async fn insert_hooks(
    conn: &mut Connection,
    body: &WebhookBody,
    content: &str,
    hooks: &[(DeliveryId, WebhookId)],
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO deliveries (id, channel, state, event_id, event_type, org_id, webhook_id, content,
             next_attempt_at, queued_at, created_at)
         SELECT h.id, 'webhook', 'queued', $1, $2, $3, h.hook, $4,
             CASE WHEN w.listens_until IS NULL THEN $7 ELSE $7::timestamptz + interval '1 year' END, $7, $7
         FROM unnest($5::uuid[], $6::uuid[]) AS h (id, hook)
         JOIN webhooks w ON w.id = h.hook
         ON CONFLICT DO NOTHING",
        body.id.uuid(),
        body.event_type,
        body.org_id.uuid(),
        content,
        &hooks.iter().map(|(id, _)| id.uuid()).collect::<Vec<_>>(),
        &hooks.iter().map(|(_, hook)| hook.uuid()).collect::<Vec<_>>(),
        now,
    )
    .execute(&mut *conn)
    .await?;
    wake(conn, Channel::Webhook).await
}

/// The lane looks when this commits.
async fn wake(conn: &mut Connection, channel: Channel) -> Result<(), sqlx::Error> {
    sqlx::query!("SELECT pg_notify('gpuaas_notify', $1)", channel.name()).fetch_one(conn).await?;
    Ok(())
}

struct Row {
    id: Uuid,
    channel: Channel,
    state: DeliveryState,
    event_type: String,
    org_id: Option<Uuid>,
    person_id: Option<Uuid>,
    webhook_id: Option<Uuid>,
    attempts: i32,
    last_error: Option<String>,
    next_attempt_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl From<Row> for Delivery {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            next_attempt_at: (row.state == DeliveryState::Queued).then_some(row.next_attempt_at),
            channel: row.channel,
            state: row.state,
            event_type: row.event_type,
            org_id: row.org_id.map(OrgId::from),
            person_id: row.person_id.map(UserId::from),
            webhook_id: row.webhook_id.map(WebhookId::from),
            attempts: row.attempts,
            last_error: row.last_error,
            finished_at: row.finished_at,
            created_at: row.created_at,
        }
    }
}

/// Newest first.
pub async fn list(
    conn: &mut Connection,
    channel: Option<Channel>,
    state: Option<DeliveryState>,
    page: &PageQuery,
) -> Result<Vec<Delivery>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, channel AS "channel: Channel", state AS "state: DeliveryState", event_type, org_id, person_id, webhook_id,
                 attempts, last_error, next_attempt_at,
             finished_at, created_at
         FROM deliveries WHERE id < $1 AND ($2::text IS NULL OR channel = $2) AND ($3::text IS NULL OR state = $3)
         ORDER BY id DESC LIMIT $4"#,
        page.before(),
        channel.map(Channel::name),
        state.map(DeliveryState::name),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Delivery::from).collect())
}

/// Those of one webhook, newest first.
pub async fn of_webhook(
    conn: &mut Connection,
    org: OrgId,
    webhook: WebhookId,
    page: &PageQuery,
) -> Result<Vec<Delivery>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, channel AS "channel: Channel", state AS "state: DeliveryState", event_type, org_id, person_id, webhook_id,
                 attempts, last_error, next_attempt_at,
             finished_at, created_at
         FROM deliveries WHERE channel = 'webhook' AND org_id = $1 AND webhook_id = $2 AND id < $3
         ORDER BY id DESC LIMIT $4"#,
        org.uuid(),
        webhook.uuid(),
        page.before(),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Delivery::from).collect())
}

pub async fn get(conn: &mut Connection, id: DeliveryId) -> Result<Option<Delivery>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, channel AS "channel: Channel", state AS "state: DeliveryState", event_type, org_id, person_id, webhook_id,
                 attempts, last_error, next_attempt_at,
             finished_at, created_at
         FROM deliveries WHERE id = $1"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Delivery::from))
}

/// A message that was given up begins anew. False when it is not one.
pub async fn requeue(conn: &mut Connection, id: DeliveryId, now: DateTime<Utc>) -> Result<bool, sqlx::Error> {
    let channel = sqlx::query_scalar!(
        r#"UPDATE deliveries SET state = 'queued', attempts = 0, finished_at = NULL, queued_at = $2, next_attempt_at = $2
           WHERE id = $1 AND state = 'failed' RETURNING channel AS "channel: Channel""#,
        id.uuid(),
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(channel) = channel else { return Ok(false) };
    wake(conn, channel).await?;
    Ok(true)
}
