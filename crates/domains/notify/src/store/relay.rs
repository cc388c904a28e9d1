//! Messages: taking what is due, and what became of it.

use chrono::{DateTime, TimeDelta, Utc};
use lifecycle::Named as _;
use pg::Connection;
use uuid::Uuid;

use crate::model::delivery::{Channel, DeliveryState, LeasedDelivery};

/// Of one webhook, and of all webhooks of one organization, at most this many are sent at once: those who hang do not
/// fill the lane.
const MOST_OF_ONE: i64 = 2;
const MOST_OF_ORG: i64 = 8;

struct Row {
    id: Uuid,
    event_type: String,
    address: Option<String>,
    webhook_id: Option<Uuid>,
    content: String,
    attempts: i32,
    queued_at: DateTime<Utc>,
    created_at: DateTime<Utc>,
}

impl From<Row> for LeasedDelivery {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            event_type: row.event_type,
            address: row.address,
            webhook_id: row.webhook_id.map(Into::into),
            content: row.content,
            attempts: row.attempts,
            queued_at: row.queued_at,
            created_at: row.created_at,
        }
    }
}

/// Takes up to `limit` messages of a channel of mail that are due, for `lease`: who does not come back in time loses them.
/// Organizations take turns: the first message of each comes before the second of any, and what is being sent counts. The
/// statement jumps along the index from organization to organization, so the length of one's queue costs the others nothing.
pub async fn take_mails(
    conn: &mut Connection,
    channel: Channel,
    limit: i64,
    now: DateTime<Utc>,
    lease: TimeDelta,
) -> Result<Vec<LeasedDelivery>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "WITH RECURSIVE waiting (org) AS (
             (SELECT coalesce(org_id, '00000000-0000-0000-0000-000000000000') FROM deliveries
              WHERE state = 'queued' AND channel IN ('mail', 'invitation') AND channel = $4
              ORDER BY coalesce(org_id, '00000000-0000-0000-0000-000000000000') LIMIT 1)
             UNION ALL
             SELECT (SELECT coalesce(d.org_id, '00000000-0000-0000-0000-000000000000') FROM deliveries d
                     WHERE d.state = 'queued' AND d.channel IN ('mail', 'invitation') AND d.channel = $4
                         AND coalesce(d.org_id, '00000000-0000-0000-0000-000000000000') > w.org
                     ORDER BY coalesce(d.org_id, '00000000-0000-0000-0000-000000000000') LIMIT 1)
             FROM waiting w WHERE w.org IS NOT NULL
         ), busy AS (
             SELECT coalesce(org_id, '00000000-0000-0000-0000-000000000000') AS org, count(*) AS messages FROM deliveries
             WHERE state = 'queued' AND channel = $4 AND taken_until > $1
             GROUP BY 1
         ), turns AS (
             SELECT d.id, d.next_attempt_at, d.place + coalesce(b.messages, 0) AS place
             FROM waiting w
             LEFT JOIN busy b ON b.org = w.org
             CROSS JOIN LATERAL (
                 SELECT e.id, e.next_attempt_at, row_number() OVER (ORDER BY e.next_attempt_at) AS place
                 FROM deliveries e
                 WHERE e.state = 'queued' AND e.channel IN ('mail', 'invitation') AND e.channel = $4
                     AND coalesce(e.org_id, '00000000-0000-0000-0000-000000000000') = w.org AND e.next_attempt_at <= $1
                 ORDER BY e.next_attempt_at LIMIT $2
             ) d
         ), mine AS (
             SELECT e.id FROM deliveries e JOIN turns t ON t.id = e.id
             WHERE e.state = 'queued' AND e.next_attempt_at <= $1
             ORDER BY t.place, t.next_attempt_at LIMIT $2 FOR UPDATE OF e SKIP LOCKED
         )
         UPDATE deliveries d SET attempts = d.attempts + 1, next_attempt_at = $3, taken_until = $3
         FROM mine WHERE d.id = mine.id
         RETURNING d.id, d.event_type, d.address, d.webhook_id, d.content, d.attempts, d.queued_at, d.created_at",
        now,
        limit,
        now + lease,
        channel.name(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(LeasedDelivery::from).collect())
}

/// Takes up to `limit` messages to webhooks that are due, for `lease`. Organizations take turns: the first message of
/// each comes before the second of any, and what is being sent counts. The statement jumps along the index from webhook to
/// webhook, so the length of one organization's queue costs the others nothing.
pub async fn take_webhooks(
    conn: &mut Connection,
    limit: i64,
    now: DateTime<Utc>,
    lease: TimeDelta,
) -> Result<Vec<LeasedDelivery>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "WITH RECURSIVE waiting (webhook_id) AS (
             (SELECT webhook_id FROM deliveries WHERE state = 'queued' AND channel = 'webhook'
              ORDER BY webhook_id LIMIT 1)
             UNION ALL
             SELECT (SELECT d.webhook_id FROM deliveries d
                     WHERE d.state = 'queued' AND d.channel = 'webhook' AND d.webhook_id > w.webhook_id
                     ORDER BY d.webhook_id LIMIT 1)
             FROM waiting w WHERE w.webhook_id IS NOT NULL
         ), busy AS (
             SELECT org_id, webhook_id FROM deliveries
             WHERE state = 'queued' AND channel = 'webhook' AND taken_until > $1
         ), due AS (
             SELECT d.id, d.org_id, d.next_attempt_at
             FROM waiting w
             CROSS JOIN LATERAL (
                 SELECT e.id, e.org_id, e.next_attempt_at FROM deliveries e
                 WHERE e.state = 'queued' AND e.channel = 'webhook' AND e.webhook_id = w.webhook_id
                     AND e.next_attempt_at <= $1
                 ORDER BY e.next_attempt_at
                 LIMIT greatest(0, $4 - (SELECT count(*) FROM busy b WHERE b.webhook_id = w.webhook_id))
             ) d
         ), turns AS (
             SELECT d.id, d.next_attempt_at, row_number() OVER (PARTITION BY d.org_id ORDER BY d.next_attempt_at)
                     + (SELECT count(*) FROM busy b WHERE b.org_id = d.org_id) AS place
             FROM due d
         ), mine AS (
             SELECT e.id FROM deliveries e JOIN turns t ON t.id = e.id
             WHERE t.place <= $5 AND e.state = 'queued' AND e.next_attempt_at <= $1
             ORDER BY t.place, t.next_attempt_at LIMIT $2 FOR UPDATE OF e SKIP LOCKED
         )
         UPDATE deliveries d SET attempts = d.attempts + 1, next_attempt_at = $3, taken_until = $3
         FROM mine WHERE d.id = mine.id
         RETURNING d.id, d.event_type, d.address, d.webhook_id, d.content, d.attempts, d.queued_at, d.created_at",
        now,
        limit,
        now + lease,
        MOST_OF_ONE,
        MOST_OF_ORG,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(LeasedDelivery::from).collect())
}

/// It arrived, or is given up. Nothing changes when somebody took it later.
pub async fn finish(
    conn: &mut Connection,
    taken: &LeasedDelivery,
    state: DeliveryState,
    error: Option<&str>,
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE deliveries SET state = $3, last_error = $4, finished_at = $5, taken_until = NULL
         WHERE id = $1 AND attempts = $2 AND state = 'queued'",
        taken.id.uuid(),
        taken.attempts,
        state.name(),
        error,
        now,
    );
    Ok(done.execute(conn).await?.rows_affected() > 0)
}

/// It is tried again later.
pub async fn postpone(
    conn: &mut Connection,
    taken: &LeasedDelivery,
    error: &str,
    next: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE deliveries SET next_attempt_at = $3, last_error = $4, taken_until = NULL
         WHERE id = $1 AND attempts = $2 AND state = 'queued'",
        taken.id.uuid(),
        taken.attempts,
        next,
        error,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Messages of interrupted attempts are due immediately, unless another worker leased them later.
pub async fn leases_release(
    conn: &mut Connection,
    ids: &[Uuid],
    attempts: &[i32],
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE deliveries d SET next_attempt_at = $3, taken_until = NULL
         FROM unnest($1::uuid[], $2::integer[]) AS held (id, attempts)
         WHERE d.id = held.id AND d.attempts = held.attempts AND d.state = 'queued'",
        ids,
        attempts,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// How many wait, how many were given up, and since when the oldest waits.
pub struct QueueStatus {
    pub queued: i64,
    pub failed: i64,
    pub oldest_queued_at: Option<DateTime<Utc>>,
}

pub async fn queue_status(conn: &mut Connection, channel: Channel) -> Result<QueueStatus, sqlx::Error> {
    sqlx::query_as!(
        QueueStatus,
        r#"SELECT count(*) FILTER (WHERE state = 'queued') AS "queued!", count(*) FILTER (WHERE state = 'failed') AS "failed!",
               min(queued_at) FILTER (WHERE state = 'queued') AS oldest_queued_at
           FROM deliveries WHERE channel = $1 AND state IN ('queued', 'failed')"#,
        channel.name(),
    )
    .fetch_one(conn)
    .await
}

/// Removes what is old: notifications, and messages that came to an end. Returns how many.
pub async fn forget(
    conn: &mut Connection,
    notifications_before: DateTime<Utc>,
    deliveries_before: DateTime<Utc>,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let notifications = sqlx::query!(
        "DELETE FROM notifications WHERE id IN
             (SELECT id FROM notifications WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
        notifications_before,
        limit,
    )
    .execute(&mut *conn)
    .await?;
    let deliveries = sqlx::query!(
        "DELETE FROM deliveries WHERE id IN
             (SELECT id FROM deliveries WHERE finished_at < $1 ORDER BY finished_at LIMIT $2)",
        deliveries_before,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(notifications.rows_affected() + deliveries.rows_affected())
}
