//! How disagreements are looked for. Every look is one statement, so that it sees one moment, and answers a bounded
//! number of rows. Nothing is written here.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, MeterId, OrgId};
use pg::Connection;
use serde_json::json;
use uuid::Uuid;

use crate::model::finding::Found;

/// Meters that run and were not accrued for long.
pub async fn lagging(
    conn: &mut Connection,
    before: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT id, org_id, accrued_until AS "accrued_until!" FROM meters
           WHERE state = 'open' AND accrued_until < $1 ORDER BY id LIMIT $2"#,
        before,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Found {
            subject: MeterId::from(row.id).to_string(),
            org: Some(OrgId::from(row.org_id)),
            detail: json!({ "message": "The meter is running but is not accrued.", "accrued_until": row.accrued_until }),
        })
        .collect())
}

/// Meters that ended and were not settled since.
pub async fn unbilled(
    conn: &mut Connection,
    before: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT id, org_id, accrued_until AS "accrued_until!", closed_at AS "closed_at!" FROM meters
           WHERE state = 'closed' AND closed_at < $1 ORDER BY id LIMIT $2"#,
        before,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Found {
            subject: MeterId::from(row.id).to_string(),
            org: Some(OrgId::from(row.org_id)),
            detail: json!({
                "message": "The meter has ended, but its last windows are not posted.",
                "accrued_until": row.accrued_until, "closed_at": row.closed_at,
            }),
        })
        .collect())
}

/// Meters of launches that neither succeeded nor failed for long.
pub async fn stale_holds(
    conn: &mut Connection,
    before: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Found>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT id, org_id, created_at, hold_remaining FROM meters
         WHERE state = 'held' AND created_at < $1 ORDER BY created_at, id LIMIT $2",
        before,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Found {
            subject: MeterId::from(row.id).to_string(),
            org: Some(OrgId::from(row.org_id)),
            detail: json!({
                "message": "Money is on hold for a launch that neither succeeded nor failed.",
                "held_minor": row.hold_remaining, "since": row.created_at,
            }),
        })
        .collect())
}

/// How one organization's books are at their end.
pub struct BookEnd {
    pub org: OrgId,
    pub held: i64,
    pub of_meters: i64,
    /// The chain ends with the posting that its head names.
    pub head_fits: bool,
}

/// Ends of books, a page of organizations at a time.
pub async fn book_ends(conn: &mut Connection, after: Uuid, limit: i64) -> Result<Vec<BookEnd>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT c.org_id AS "org_id!", coalesce(p.held_after, 0) AS "held!", coalesce(m.held, 0)::bigint AS "of_meters!",
             (c.seq = 0 OR coalesce(p.hash = c.hash, false)) AND NOT EXISTS (
                 SELECT FROM ledger_postings n WHERE n.org_id = c.org_id AND n.seq = c.seq + 1) AS "head_fits!"
           FROM (SELECT org_id, seq, posted_at, hash FROM ledger_chains WHERE org_id > $1 ORDER BY org_id LIMIT $2) AS c
           LEFT JOIN ledger_postings p ON p.org_id = c.org_id AND p.seq = c.seq AND p.posted_at = c.posted_at
           LEFT JOIN LATERAL (
             SELECT sum(hold_remaining) AS held FROM meters
             WHERE org_id = c.org_id AND state IN ('held', 'open', 'paused', 'closed')
           ) AS m ON true
           ORDER BY c.org_id"#,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| BookEnd {
            org: OrgId::from(row.org_id),
            held: row.held,
            of_meters: row.of_meters,
            head_fits: row.head_fits,
        })
        .collect())
}

/// A posting, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PostingKey {
    pub org: Uuid,
    pub seq: i64,
}

/// Postings after a place, in the order of their chains.
pub async fn postings_after(
    conn: &mut Connection,
    after: PostingKey,
    limit: i64,
) -> Result<Vec<PostingKey>, sqlx::Error> {
    sqlx::query_as!(
        PostingKey,
        "SELECT org_id AS org, seq FROM ledger_postings WHERE (org_id, seq) > ($1, $2) ORDER BY org_id, seq LIMIT $3",
        after.org,
        after.seq,
        limit,
    )
    .fetch_all(conn)
    .await
}

/// Postings that were made since a time, newest first.
pub async fn postings_since(
    conn: &mut Connection,
    since: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<PostingKey>, sqlx::Error> {
    sqlx::query_as!(
        PostingKey,
        "SELECT org_id AS org, seq FROM ledger_postings WHERE posted_at >= $1 ORDER BY posted_at DESC LIMIT $2",
        since,
        limit,
    )
    .fetch_all(conn)
    .await
}

/// Of these postings, those that are not the sum of the usage that they stand for.
pub async fn usage_mismatches(
    conn: &mut Connection,
    keys: &[PostingKey],
) -> Result<Vec<(PostingKey, i64, i64)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT p.org_id, p.seq, l.posted AS "posted!", u.used AS "used!"
           FROM unnest($1::uuid[], $2::bigint[]) AS k (org_id, seq)
           JOIN ledger_postings p ON p.org_id = k.org_id AND p.seq = k.seq
           CROSS JOIN LATERAL (
             SELECT coalesce(sum(amount_minor), 0)::bigint AS posted FROM ledger_lines
             WHERE org_id = p.org_id AND seq = p.seq AND posted_at = p.posted_at
                 AND account IN ('revenue', 'credits_granted') AND (p.kind = 'usage' OR meter_id IS NOT NULL)
           ) AS l
           CROSS JOIN LATERAL (
             SELECT coalesce(sum(amount_minor), 0)::bigint AS used FROM usage_records
             WHERE org_id = p.org_id AND posted_at = p.posted_at AND seq = p.seq
           ) AS u
           WHERE p.kind IN ('usage', 'credit', 'correction') AND l.posted <> u.used"#,
        &keys.iter().map(|key| key.org).collect::<Vec<_>>(),
        &keys.iter().map(|key| key.seq).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (PostingKey { org: row.org_id, seq: row.seq }, row.posted, row.used))
        .collect())
}

/// Of these postings, those that do not fit into their chain, and what of them does not.
pub async fn broken_links(
    conn: &mut Connection,
    keys: &[PostingKey],
) -> Result<Vec<(PostingKey, String)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT org_id AS "org_id!", seq AS "seq!", what AS "what!" FROM (
             SELECT p.org_id, p.seq, CASE
                 WHEN ledger_hash(p) <> p.hash THEN 'its hash is not that of its fields'
                 WHEN p.prev_hash IS DISTINCT FROM CASE WHEN p.seq = 1 THEN ledger_genesis(p.org_id) ELSE (
                     SELECT q.hash FROM ledger_postings q WHERE q.org_id = p.org_id AND q.seq = p.seq - 1 LIMIT 1) END
                     THEN 'it does not follow the one before'
                 WHEN p.lines_digest <> (
                     SELECT sha256(coalesce(string_agg(ledger_leaf(ROW(l.line, l.account, l.amount_minor, l.project_id, l.allocation_id,
                         l.app_instance_id, l.meter_id, l.window_start, l.window_end, l.correlation_id)::ledger_line_content), ''::bytea ORDER BY l.line),
                         ''::bytea))
                     FROM ledger_lines l WHERE l.org_id = p.org_id AND l.seq = p.seq AND l.posted_at = p.posted_at)
                     THEN 'its lines are not those that were posted'
                 END AS what
             FROM unnest($1::uuid[], $2::bigint[]) AS k (org_id, seq)
             JOIN ledger_postings p ON p.org_id = k.org_id AND p.seq = k.seq
           ) AS checked WHERE what IS NOT NULL"#,
        &keys.iter().map(|key| key.org).collect::<Vec<_>>(),
        &keys.iter().map(|key| key.seq).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (PostingKey { org: row.org_id, seq: row.seq }, row.what)).collect())
}

/// Of these allocations, those without a meter that runs or stands still.
pub async fn unmetered(
    conn: &mut Connection,
    ids: &[AllocationId],
) -> Result<Vec<AllocationId>, sqlx::Error> {
    let rows = sqlx::query_scalar!(
        r#"SELECT a.id AS "id!" FROM unnest($1::uuid[]) AS a (id)
           WHERE NOT EXISTS (SELECT FROM meters m WHERE m.allocation_id = a.id AND m.state IN ('open', 'paused'))"#,
        &ids.iter().map(|id| id.uuid()).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(AllocationId::from).collect())
}

/// A meter of an allocation that runs or stands still.
#[derive(Clone, Copy, Debug)]
pub struct Metered {
    pub meter: MeterId,
    pub org: OrgId,
    pub allocation: AllocationId,
}

pub async fn metered(conn: &mut Connection, after: Uuid, limit: i64) -> Result<Vec<Metered>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT id, org_id, allocation_id AS "allocation_id!" FROM meters
           WHERE id > $1 AND state IN ('open', 'paused') AND allocation_id IS NOT NULL ORDER BY id LIMIT $2"#,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Metered {
            meter: MeterId::from(row.id),
            org: OrgId::from(row.org_id),
            allocation: AllocationId::from(row.allocation_id),
        })
        .collect())
}

/// Of these meters, those that still run or stand still.
pub async fn still_metered(conn: &mut Connection, ids: &[MeterId]) -> Result<Vec<MeterId>, sqlx::Error> {
    let rows = sqlx::query_scalar!(
        "SELECT id FROM meters WHERE id = ANY ($1) AND state IN ('open', 'paused')",
        &ids.iter().map(|id| id.uuid()).collect::<Vec<_>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(MeterId::from).collect())
}
