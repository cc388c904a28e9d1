//! Where people are signed in.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{SessionId, UserId},
};
use pg::Connection;

use crate::model::person::Session;

/// Sessions that are neither revoked nor over.
pub async fn list(
    conn: &mut Connection,
    user: UserId,
    current: SessionId,
    page: &PageQuery,
    now: DateTime<Utc>,
) -> Result<Vec<Session>, sqlx::Error> {
    sqlx::query_as!(
        Session,
        r#"SELECT id, client_id, user_agent, source_ip, id = $2 AS "current!", created_at, last_seen_at, expires_at
           FROM account_sessions
           WHERE user_id = $1 AND id > $3 AND revoked_at IS NULL AND expires_at > $5 ORDER BY id LIMIT $4"#,
        user.uuid(),
        current.uuid(),
        page.after(),
        page.limit(),
        now,
    )
    .fetch_all(conn)
    .await
}

/// Whether the session exists, and whether it was alive until now.
pub async fn revoke(
    conn: &mut Connection,
    user: UserId,
    id: SessionId,
    by_itself: bool,
    now: DateTime<Utc>,
) -> Result<Option<bool>, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE account_sessions SET revoked_at = $3, ended_by_itself = $4
         WHERE user_id = $1 AND id = $2 AND revoked_at IS NULL",
        user.uuid(),
        id.uuid(),
        now,
        by_itself,
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 1 {
        return Ok(Some(true));
    }
    let known = sqlx::query_scalar!(
        "SELECT id FROM account_sessions WHERE user_id = $1 AND id = $2",
        user.uuid(),
        id.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(known.map(|_| false))
}

/// Ends the browsers that the acting person has signed in at the built-in issuer, and what was about to be signed in
/// from them; all but what the session was made from.
pub async fn end_browsers(conn: &mut Connection, issuer: &str, keep: SessionId) -> Result<(), sqlx::Error> {
    sqlx::query!(r#"SELECT issuer_browsers_end($1, $2) AS "ended: ()""#, issuer, keep.uuid())
        .execute(conn)
        .await?;
    Ok(())
}

pub async fn revoke_others(
    conn: &mut Connection,
    user: UserId,
    current: SessionId,
    now: DateTime<Utc>,
) -> Result<Vec<SessionId>, sqlx::Error> {
    let ids = sqlx::query_scalar!(
        "UPDATE account_sessions SET revoked_at = $3
         WHERE user_id = $1 AND id <> $2 AND revoked_at IS NULL AND expires_at > $3 RETURNING id",
        user.uuid(),
        current.uuid(),
        now,
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(SessionId::from).collect())
}
