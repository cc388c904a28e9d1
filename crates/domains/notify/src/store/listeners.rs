//! Webhooks whose messages are fetched.

use chrono::{DateTime, Utc};
use kernel::ids::{DeliveryId, OrgId, WebhookId};
use pg::Connection;
use uuid::Uuid;

/// A message that waits to be fetched.
pub struct Waiting {
    pub id: Uuid,
    pub event_type: String,
    pub content: String,
    pub created_at: DateTime<Utc>,
}

/// The oldest first.
pub async fn waiting(conn: &mut Connection, id: WebhookId, limit: i64) -> Result<Vec<Waiting>, sqlx::Error> {
    sqlx::query_as!(
        Waiting,
        "SELECT id, event_type, content, created_at FROM deliveries
         WHERE webhook_id = $1 AND state = 'queued' AND channel = 'webhook' ORDER BY next_attempt_at, id LIMIT $2",
        id.uuid(),
        limit,
    )
    .fetch_all(conn)
    .await
}

/// They were fetched.
pub async fn delivered(
    conn: &mut Connection,
    id: WebhookId,
    fetched: &[DeliveryId],
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    if fetched.is_empty() {
        return Ok(());
    }
    let fetched: Vec<Uuid> = fetched.iter().map(|delivery| delivery.uuid()).collect();
    sqlx::query!(
        "UPDATE deliveries SET state = 'sent', attempts = attempts + 1, finished_at = $3, taken_until = NULL
         WHERE id = ANY ($2) AND webhook_id = $1 AND state = 'queued'",
        id.uuid(),
        &fetched,
        now,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!("UPDATE webhooks SET last_delivered_at = $2 WHERE id = $1", id.uuid(), now)
        .execute(conn)
        .await?;
    Ok(())
}

/// Somebody listens. False when it is gone or disabled. Written when half of the time is over, not at every look.
pub async fn listening_extend(
    conn: &mut Connection,
    org: OrgId,
    id: WebhookId,
    until: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    let found = sqlx::query_scalar!(
        r#"SELECT listens_until AS "listens_until!" FROM webhooks
           WHERE id = $1 AND org_id = $2 AND state = 'active' AND listens_until IS NOT NULL"#,
        id.uuid(),
        org.uuid(),
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(kept_until) = found else { return Ok(false) };
    if until - kept_until > crate::model::webhook::LISTENER_KEPT / 2 {
        sqlx::query!("UPDATE webhooks SET listens_until = $2 WHERE id = $1", id.uuid(), until)
            .execute(conn)
            .await?;
    }
    Ok(true)
}

pub async fn expired(
    conn: &mut Connection,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(OrgId, WebhookId)>, sqlx::Error> {
    let rows = sqlx::query!("SELECT org_id, id FROM webhooks WHERE listens_until < $1 LIMIT $2", now, limit)
        .fetch_all(conn)
        .await?;
    Ok(rows.into_iter().map(|row| (row.org_id.into(), row.id.into())).collect())
}
