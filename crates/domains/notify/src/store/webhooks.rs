//! Outgoing webhooks.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, PageQuery, Problem,
    ids::{OrgId, WebhookId},
};
use lifecycle::Named as _;
use pg::{Connection, Swap};

use crate::model::webhook::{Destination, Webhook, WebhookState};

/// What a webhook is made of.
pub struct New<'a> {
    pub id: WebhookId,
    pub org: OrgId,
    pub name: &'a str,
    pub url: &'a str,
    pub event_types: &'a [String],
    pub secret: &'a [u8],
    /// Of a listener: until then, unless somebody listens.
    pub listens_until: Option<DateTime<Utc>>,
}

fn named(error: sqlx::Error) -> Failure {
    if pg::constraint_violated(&error) == Some("webhooks_org_id_name_key") {
        return Problem::new(
            Code::AlreadyExists,
            "A webhook with this name already exists in the organization.",
        )
        .detail("field", "name")
        .into();
    }
    error.into()
}

pub async fn insert(conn: &mut Connection, new: &New<'_>, now: DateTime<Utc>) -> Result<Webhook, Failure> {
    sqlx::query_as!(
        Webhook,
        r#"INSERT INTO webhooks (id, org_id, name, url, event_types, state, secret, listens_until, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, 'active', $6, $8, $7, $7)
         RETURNING id, name, url, event_types, state AS "state: WebhookState", disabled_reason, failing_since,
             last_delivered_at,
             previous_until AS previous_secret_until, dropped_events, last_dropped_at, listens_until, version, created_at,
             updated_at"#,
        new.id.uuid(),
        new.org.uuid(),
        new.name,
        new.url,
        new.event_types,
        new.secret,
        now,
        new.listens_until as Option<DateTime<Utc>>,
    )
    .fetch_one(conn)
    .await
    .map_err(named)
}

/// How many there are; no two requests count at once.
pub async fn lock_count(conn: &mut Connection, org: OrgId) -> Result<i64, sqlx::Error> {
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtextextended('webhooks:' || $1::uuid::text, 0))",
        org.uuid()
    )
    .fetch_one(&mut *conn)
    .await?;
    sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM webhooks WHERE org_id = $1"#, org.uuid())
        .fetch_one(conn)
        .await
}

pub async fn get(conn: &mut Connection, org: OrgId, id: WebhookId) -> Result<Option<Webhook>, sqlx::Error> {
    sqlx::query_as!(
        Webhook,
        r#"SELECT id, name, url, event_types, state AS "state: WebhookState", disabled_reason, failing_since, last_delivered_at,
             previous_until AS previous_secret_until, dropped_events, last_dropped_at, listens_until, version, created_at,
             updated_at
         FROM webhooks WHERE org_id = $1 AND id = $2"#,
        org.uuid(),
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

pub async fn lock(conn: &mut Connection, org: OrgId, id: WebhookId) -> Result<Option<Webhook>, sqlx::Error> {
    sqlx::query!("SELECT id FROM webhooks WHERE org_id = $1 AND id = $2 FOR UPDATE", org.uuid(), id.uuid())
        .fetch_optional(&mut *conn)
        .await?;
    get(conn, org, id).await
}

pub async fn list(conn: &mut Connection, org: OrgId, page: &PageQuery) -> Result<Vec<Webhook>, sqlx::Error> {
    sqlx::query_as!(
        Webhook,
        r#"SELECT id, name, url, event_types, state AS "state: WebhookState", disabled_reason, failing_since, last_delivered_at,
             previous_until AS previous_secret_until, dropped_events, last_dropped_at, listens_until, version, created_at,
             updated_at
         FROM webhooks WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $3"#,
        org.uuid(),
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await
}

/// Writes `after`, whose version is the one that was read. Enabled again, it counts as well until it fails.
pub async fn update(
    conn: &mut Connection,
    org: OrgId,
    after: &Webhook,
    if_match: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<Webhook>, Failure> {
    let updated = sqlx::query_as!(
        Webhook,
        r#"UPDATE webhooks SET name = $3, url = $4, event_types = $5, state = $6, disabled_reason = $7,
             failing_since = CASE WHEN state = 'disabled' AND $6 = 'active' THEN NULL ELSE failing_since END,
             version = version + 1, updated_at = $8
         WHERE org_id = $1 AND id = $2 AND version = $9 AND version = coalesce($10, version)
         RETURNING id, name, url, event_types, state AS "state: WebhookState", disabled_reason, failing_since,
             last_delivered_at,
             previous_until AS previous_secret_until, dropped_events, last_dropped_at, listens_until, version, created_at,
             updated_at"#,
        org.uuid(),
        after.id.uuid(),
        after.name,
        after.url,
        &after.event_types,
        after.state.name(),
        after.disabled_reason.clone() as Option<String>,
        now,
        after.version,
        if_match,
    )
    .fetch_optional(conn)
    .await
    .map_err(named)?;
    Ok(Swap::from_update(updated, Some(after.version)))
}

/// The secret so far is used as well until `until`.
pub async fn rotate(
    conn: &mut Connection,
    org: OrgId,
    id: WebhookId,
    secret: &[u8],
    until: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<Option<Webhook>, sqlx::Error> {
    sqlx::query_as!(
        Webhook,
        r#"UPDATE webhooks SET previous_secret = secret, previous_until = $4, secret = $3, version = version + 1,
             updated_at = $5
         WHERE org_id = $1 AND id = $2
         RETURNING id, name, url, event_types, state AS "state: WebhookState", disabled_reason, failing_since,
             last_delivered_at,
             previous_until AS previous_secret_until, dropped_events, last_dropped_at, listens_until, version, created_at,
             updated_at"#,
        org.uuid(),
        id.uuid(),
        secret,
        until,
        now,
    )
    .fetch_optional(conn)
    .await
}

pub async fn delete(conn: &mut Connection, org: OrgId, id: WebhookId) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!("DELETE FROM webhooks WHERE org_id = $1 AND id = $2", org.uuid(), id.uuid());
    Ok(done.execute(conn).await?.rows_affected() > 0)
}

/// The active ones of an organization that want a type of event, and listeners that are there.
pub async fn wanting(
    conn: &mut Connection,
    org: OrgId,
    event_type: &str,
    now: DateTime<Utc>,
) -> Result<Vec<WebhookId>, sqlx::Error> {
    let ids = sqlx::query_scalar!(
        "SELECT id FROM webhooks WHERE org_id = $1 AND state = 'active'
             AND (event_types = '{}' OR $2 = ANY (event_types)) AND (listens_until IS NULL OR listens_until > $3)
         ORDER BY id",
        org.uuid(),
        event_type,
        now,
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(WebhookId::from).collect())
}

/// How many messages of an organization wait to be sent to its webhooks; counted up to `limit`.
pub async fn queued_count(conn: &mut Connection, org: OrgId, limit: i64) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM (
               SELECT d.id FROM webhooks w
               JOIN deliveries d ON d.webhook_id = w.id AND d.state = 'queued' AND d.channel = 'webhook'
               WHERE w.org_id = $1 LIMIT $2) waiting"#,
        org.uuid(),
        limit,
    )
    .fetch_one(conn)
    .await
}

/// These webhooks missed an event.
pub async fn count_dropped(
    conn: &mut Connection,
    ids: &[WebhookId],
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE webhooks SET dropped_events = dropped_events + 1, last_dropped_at = $2 WHERE id = ANY ($1)",
        &ids.iter().map(|id| id.uuid()).collect::<Vec<_>>(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn destination(conn: &mut Connection, id: WebhookId) -> Result<Option<Destination>, sqlx::Error> {
    sqlx::query_as!(
        Destination,
        r#"SELECT id, org_id, name, url, state = 'active' AS "active!", secret, previous_secret, previous_until, failing_since
           FROM webhooks WHERE id = $1"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

/// Something arrived.
pub async fn succeeded(conn: &mut Connection, id: WebhookId, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE webhooks SET failing_since = NULL, last_delivered_at = $2 WHERE id = $1",
        id.uuid(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Something did not arrive; since when nothing does.
pub async fn failed(
    conn: &mut Connection,
    id: WebhookId,
    now: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    let since = sqlx::query_scalar!(
        "UPDATE webhooks SET failing_since = coalesce(failing_since, $2) WHERE id = $1 AND state = 'active'
         RETURNING failing_since",
        id.uuid(),
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(since.flatten())
}

/// Nothing is sent to it any more, nor what still waits. False when it was disabled, or works again.
pub async fn disable(
    conn: &mut Connection,
    id: WebhookId,
    reason: &str,
    failing_before: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    let disabled = sqlx::query_scalar!(
        "UPDATE webhooks SET state = 'disabled', disabled_reason = $2, version = version + 1, updated_at = $4
         WHERE id = $1 AND state = 'active' AND failing_since <= $3 RETURNING id",
        id.uuid(),
        reason,
        failing_before,
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    if disabled.is_some() {
        sqlx::query!(
            "UPDATE deliveries SET state = 'failed', finished_at = $3, last_error = $2, taken_until = NULL
             WHERE channel = 'webhook' AND webhook_id = $1 AND state = 'queued'",
            id.uuid(),
            reason,
            now,
        )
        .execute(conn)
        .await?;
    }
    Ok(disabled.is_some())
}
