//! Rights to attach once.

use chrono::{DateTime, Utc};
use endpoint::SignIn;
use kernel::ids::{AllocationId, ProjectId};
use pg::{Connection, WriteTx};
use uuid::Uuid;

use super::sign_in;
use crate::model::token::{Purpose, TokenKind};

pub struct NewToken<'a> {
    pub hash: [u8; 32],
    pub org_id: Uuid,
    pub project_id: ProjectId,
    pub allocation_id: AllocationId,
    pub purpose: Purpose,
    pub sign_in: SignIn,
    pub sealed_grant: &'a [u8],
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

pub async fn insert(tx: &mut WriteTx, token: &NewToken<'_>) -> Result<(), sqlx::Error> {
    let (session, key) = sign_in::columns(token.sign_in);
    sqlx::query!(
        "INSERT INTO terminal_tokens (token_hash, org_id, project_id, allocation_id, kind, session_id, account_session_id,
             service_account_key_id, sealed_grant, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        &token.hash[..],
        token.org_id,
        token.project_id.uuid(),
        token.allocation_id.uuid(),
        token.purpose.kind().name(),
        token.purpose.session().map(|session| session.uuid()),
        session,
        key,
        token.sealed_grant,
        token.created_at,
        token.expires_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// What a token was good for.
pub struct Consumed {
    pub project_id: ProjectId,
    pub allocation_id: AllocationId,
    pub purpose: Purpose,
    pub sign_in: SignIn,
    pub sealed_grant: Vec<u8>,
    pub expires_at: DateTime<Utc>,
}

/// Uses a token up: of several with the same one, one gets it.
pub async fn consume(conn: &mut Connection, hash: &[u8; 32]) -> Result<Option<Consumed>, sqlx::Error> {
    let row = sqlx::query!(
        r#"DELETE FROM terminal_tokens WHERE token_hash = $1
         RETURNING project_id, allocation_id, kind AS "kind: TokenKind", session_id, account_session_id,
             service_account_key_id, sealed_grant, expires_at"#,
        &hash[..],
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.and_then(|row| {
        Some(Consumed {
            project_id: row.project_id.into(),
            allocation_id: row.allocation_id.into(),
            purpose: Purpose::new(row.kind, row.session_id.map(Into::into))?,
            sign_in: sign_in::from_columns(row.account_session_id, row.service_account_key_id)?,
            sealed_grant: row.sealed_grant,
            expires_at: row.expires_at,
        })
    }))
}

/// Forgets tokens that nobody used in time. Answers how many.
pub async fn forget_expired(
    conn: &mut Connection,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "DELETE FROM terminal_tokens WHERE token_hash IN
             (SELECT token_hash FROM terminal_tokens WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)",
        now,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
