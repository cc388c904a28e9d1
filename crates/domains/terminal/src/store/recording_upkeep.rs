//! Recordings that a job has to do something with.
//!
//! What fails is tried again after longer and longer times, up to an hour, so that recordings that cannot be sealed or deleted
//! do not keep others waiting.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, OrgId, TerminalSessionId};
use pg::{Connection, WriteTx};

use super::recordings::Stored;

/// A recording whose session has ended and that nobody sealed.
pub struct Unsealed {
    pub session: TerminalSessionId,
    pub org: OrgId,
    /// What is stored, as far as was noted.
    pub noted: Stored,
    pub tampering: Option<String>,
    pub ended_at: DateTime<Utc>,
    pub reason: String,
}

/// The earlier of this time and that of the database: a process whose clock is ahead does nothing early.
pub async fn earlier_now(conn: &mut Connection, now: DateTime<Utc>) -> Result<DateTime<Utc>, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT least($1::timestamptz, now()) AS "now!""#, now).fetch_one(conn).await
}

/// Takes recordings over from gateways that did not seal them although their session ended before `before`. A gateway that
/// still has one learns that it does not write any longer.
pub async fn claim_unsealed(
    conn: &mut Connection,
    (before, now): (DateTime<Utc>, DateTime<Utc>),
    limit: i64,
) -> Result<Vec<Unsealed>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"WITH due AS (SELECT r.session_id, coalesce(s.ended_at, $1) AS ended_at, coalesce(s.end_reason, 'lost') AS reason
               FROM terminal_recordings r LEFT JOIN terminal_sessions s ON s.id = r.session_id
               WHERE r.sealed_at IS NULL AND r.deleted_at IS NULL AND (s.id IS NULL OR s.ended_at <= $1)
                   AND (r.next_attempt_at IS NULL OR r.next_attempt_at <= $2)
               ORDER BY r.next_attempt_at NULLS FIRST LIMIT $3 FOR UPDATE OF r SKIP LOCKED)
           UPDATE terminal_recordings r SET epoch = r.epoch + 1, attempts = r.attempts + 1,
               next_attempt_at = $2 + least(interval '1 hour', interval '10 seconds' * power(2, least(r.attempts, 12)))
           FROM due WHERE r.session_id = due.session_id
           RETURNING r.session_id, r.org_id, r.chunks, r.end_sequence, r.bytes, r.head, r.tampering,
               due.ended_at AS "ended_at!", due.reason AS "reason!""#,
        before,
        now,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let unsealed = rows.into_iter();
    Ok(unsealed
        .map(|row| Unsealed {
            session: row.session_id.into(),
            org: row.org_id.into(),
            noted: Stored {
                chunks: row.chunks,
                end_sequence: row.end_sequence,
                bytes: row.bytes,
                head: row.head,
            },
            tampering: row.tampering,
            ended_at: row.ended_at,
            reason: row.reason,
        })
        .collect())
}

/// A recording of which nothing was ever stored: nothing of its session was shown to anybody.
pub async fn remove(conn: &mut Connection, session: TerminalSessionId) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "DELETE FROM terminal_recordings WHERE session_id = $1 AND sealed_at IS NULL",
        session.uuid()
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Recordings whose time is over and whose objects are still there, for one job alone until the next attempt is due.
pub async fn claim_expired(
    conn: &mut Connection,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(TerminalSessionId, AllocationId, OrgId)>, sqlx::Error> {
    let rows = sqlx::query!(
        "WITH due AS (SELECT session_id FROM terminal_recordings
             WHERE deleted_at IS NULL AND expires_at <= $1 AND (next_attempt_at IS NULL OR next_attempt_at <= $1)
             ORDER BY next_attempt_at NULLS FIRST LIMIT $2 FOR UPDATE SKIP LOCKED)
         UPDATE terminal_recordings r SET attempts = r.attempts + 1,
             next_attempt_at = $1 + least(interval '1 hour', interval '10 seconds' * power(2, least(r.attempts, 12)))
         FROM due WHERE r.session_id = due.session_id
         RETURNING r.session_id, r.allocation_id, r.org_id",
        now,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let expired = rows.into_iter();
    Ok(expired.map(|row| (row.session_id.into(), row.allocation_id.into(), row.org_id.into())).collect())
}

/// The recording is to be kept until a later time than the row said.
pub async fn keep_until(
    conn: &mut Connection,
    session: TerminalSessionId,
    expires_at: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE terminal_recordings SET expires_at = $2, attempts = 0, next_attempt_at = NULL WHERE session_id = $1",
        session.uuid(),
        expires_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// False when somebody else has noted it.
pub async fn note_deleted(
    tx: &mut WriteTx,
    session: TerminalSessionId,
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE terminal_recordings SET deleted_at = $2 WHERE session_id = $1 AND deleted_at IS NULL",
        session.uuid(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Forgets recordings that were deleted before `before`. Answers how many.
pub async fn forget_deleted(
    conn: &mut Connection,
    before: DateTime<Utc>,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "DELETE FROM terminal_recordings WHERE session_id IN
             (SELECT session_id FROM terminal_recordings WHERE deleted_at < $1 ORDER BY deleted_at LIMIT $2)",
        before,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
