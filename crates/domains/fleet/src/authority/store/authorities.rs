//! Generations of the authority.

use chrono::{DateTime, Utc};
use kernel::{Code, Failure, PageQuery, Problem, ids::AuthorityId};
use pg::Connection;
use uuid::Uuid;

use crate::authority::model::authority::AuthorityState;

#[derive(Clone, Debug)]
pub struct AuthorityRow {
    pub id: Uuid,
    pub state: AuthorityState,
    pub root_certificate: String,
    pub issuing_certificate: String,
    pub sealed: Vec<u8>,
    pub not_after: DateTime<Utc>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl AuthorityRow {
    pub fn id(&self) -> AuthorityId {
        self.id.into()
    }
}

/// More than there will ever be at once; a flood of rows that somebody else wrote ends here.
const BELIEVED: i64 = 64;

/// Those in staged, active or grace, oldest first.
pub async fn believed(conn: &mut Connection) -> Result<Vec<AuthorityRow>, sqlx::Error> {
    sqlx::query_as!(
        AuthorityRow,
        r#"SELECT id, state AS "state: AuthorityState", root_certificate, issuing_certificate, sealed, not_after, version,
             created_at, updated_at
         FROM authorities WHERE state IN ('staged', 'active', 'grace') ORDER BY id LIMIT $1"#,
        BELIEVED,
    )
    .fetch_all(conn)
    .await
}

pub async fn list(conn: &mut Connection, page: &PageQuery) -> Result<Vec<AuthorityRow>, sqlx::Error> {
    sqlx::query_as!(
        AuthorityRow,
        r#"SELECT id, state AS "state: AuthorityState", root_certificate, issuing_certificate, sealed, not_after, version,
             created_at, updated_at
         FROM authorities WHERE id > $1 ORDER BY id LIMIT $2"#,
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await
}

pub async fn any(conn: &mut Connection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT EXISTS (SELECT FROM authorities) AS "any!""#).fetch_one(conn).await
}

pub async fn get(conn: &mut Connection, id: AuthorityId) -> Result<Option<AuthorityRow>, sqlx::Error> {
    sqlx::query_as!(
        AuthorityRow,
        r#"SELECT id, state AS "state: AuthorityState", root_certificate, issuing_certificate, sealed, not_after, version,
             created_at, updated_at
         FROM authorities WHERE id = $1"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await
}

pub async fn insert(
    conn: &mut Connection,
    authority: &trust::ca::Authority,
    sealed: &[u8],
    state: AuthorityState,
    now: DateTime<Utc>,
) -> Result<AuthorityRow, Failure> {
    sqlx::query_as!(
        AuthorityRow,
        r#"INSERT INTO authorities (id, state, root_certificate, issuing_certificate, sealed, not_after, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
         RETURNING id, state AS "state: AuthorityState", root_certificate, issuing_certificate, sealed, not_after,
             version, created_at, updated_at"#,
        authority.id().uuid(),
        state.name(),
        authority.root_pem(),
        authority.issuing_pem(),
        sealed,
        authority.not_after(),
        now,
    )
    .fetch_one(conn)
    .await
    .map_err(|error| match pg::constraint_violated(&error) {
        Some("authorities_one_staged") => Problem::new(Code::AlreadyExists, "A generation is already staged.")
            .suggest("Activate or revoke the staged generation first.")
            .into(),
        _ => error.into(),
    })
}

/// Nothing when the row was not in `from`.
pub async fn set_state(
    conn: &mut Connection,
    id: AuthorityId,
    from: AuthorityState,
    to: AuthorityState,
    now: DateTime<Utc>,
) -> Result<Option<AuthorityRow>, sqlx::Error> {
    sqlx::query_as!(
        AuthorityRow,
        r#"UPDATE authorities SET state = $3, version = version + 1, updated_at = $4 WHERE id = $1 AND state = $2
         RETURNING id, state AS "state: AuthorityState", root_certificate, issuing_certificate, sealed, not_after,
             version, created_at, updated_at"#,
        id.uuid(),
        from.name(),
        to.name(),
        now,
    )
    .fetch_optional(conn)
    .await
}

/// Certificates of nodes that would stop counting without this generation.
pub async fn live_certificates(
    conn: &mut Connection,
    id: AuthorityId,
    now: DateTime<Utc>,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM node_certificates
           WHERE authority_id = $1 AND revoked_at IS NULL AND not_after > $2"#,
        id.uuid(),
        now,
    )
    .fetch_one(conn)
    .await
}
