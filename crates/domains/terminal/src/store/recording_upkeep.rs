//! Recordings that a job has to do something with.

use chrono::{DateTime, Utc};
use kernel::ids::{OrgId, TerminalSessionId};
use pg::Connection;

/// A recording whose session has ended and that nobody sealed.
pub struct Unsealed {
    pub session: TerminalSessionId,
    pub org: OrgId,
    /// As far as was noted.
    pub chunks: i64,
    pub ended_at: DateTime<Utc>,
    pub reason: String,
}

/// Takes recordings over from gateways that did not seal them although their session ended before `before`. A gateway that
/// still has one learns that it does not write any longer.
pub async fn claim_unsealed(
    conn: &mut Connection,
    before: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Unsealed>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"WITH due AS (SELECT r.session_id, coalesce(s.ended_at, $1) AS ended_at, coalesce(s.end_reason, 'lost') AS reason
               FROM terminal_recordings r LEFT JOIN terminal_sessions s ON s.id = r.session_id
               WHERE r.sealed_at IS NULL AND r.deleted_at IS NULL AND (s.id IS NULL OR s.ended_at <= $1)
               LIMIT $2 FOR UPDATE OF r SKIP LOCKED)
           UPDATE terminal_recordings r SET epoch = r.epoch + 1 FROM due WHERE r.session_id = due.session_id
           RETURNING r.session_id, r.org_id, r.chunks, due.ended_at AS "ended_at!", due.reason AS "reason!""#,
        before,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let unsealed = rows.into_iter();
    Ok(unsealed
        .map(|row| Unsealed {
            session: row.session_id.into(),
            org: row.org_id.into(),
            chunks: row.chunks,
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

/// Recordings whose time is over and whose objects are still there.
pub async fn list_expired(
    conn: &mut Connection,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(TerminalSessionId, OrgId)>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT session_id, org_id FROM terminal_recordings
         WHERE deleted_at IS NULL AND expires_at <= $1 ORDER BY expires_at LIMIT $2",
        now,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.session_id.into(), row.org_id.into())).collect())
}

pub async fn note_deleted(
    conn: &mut Connection,
    session: TerminalSessionId,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE terminal_recordings SET deleted_at = $2 WHERE session_id = $1 AND deleted_at IS NULL",
        session.uuid(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
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
