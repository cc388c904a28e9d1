//! SQL of authentication: principals with their roles, sessions, newcomers, places.

use chrono::{DateTime, Utc};
use pg::Connection;
use sqlx::Error;
use uuid::Uuid;

/// A session with everything authorization is decided from.
pub(crate) struct PrincipalRow {
    pub session_id: Uuid,
    pub user_id: Uuid,
    pub subject: String,
    pub revoked: bool,
    pub revoked_at: Option<DateTime<Utc>>,
    pub ended_by_itself: bool,
    pub expires_at: DateTime<Utc>,
    pub last_seen_at: DateTime<Utc>,
    pub platform_roles: Vec<String>,
    pub org_ids: Vec<Uuid>,
    pub org_roles: Vec<String>,
    pub org_suspended: Vec<bool>,
    pub project_ids: Vec<Uuid>,
    pub project_roles: Vec<String>,
}

pub(crate) async fn principal(
    conn: &mut Connection,
    issuer: &str,
    issuer_sid: &str,
) -> Result<Option<PrincipalRow>, Error> {
    sqlx::query_as!(
        PrincipalRow,
        r#"SELECT s.id AS session_id, s.user_id, u.subject, s.revoked_at IS NOT NULL AS "revoked!", s.revoked_at, s.ended_by_itself, s.expires_at,
               s.last_seen_at,
               ARRAY(SELECT b.role FROM platform_bindings b WHERE b.user_id = s.user_id ORDER BY b.role) AS "platform_roles!",
               coalesce(o.ids, '{}') AS "org_ids!", coalesce(o.roles, '{}') AS "org_roles!",
               coalesce(o.suspended, '{}') AS "org_suspended!",
               coalesce(p.ids, '{}') AS "project_ids!", coalesce(p.roles, '{}') AS "project_roles!"
           FROM account_sessions s
           JOIN users u ON u.id = s.user_id
           CROSS JOIN LATERAL (
               SELECT array_agg(m.org_id ORDER BY m.org_id) AS ids, array_agg(m.role ORDER BY m.org_id) AS roles,
                      array_agg(g.suspended_at IS NOT NULL ORDER BY m.org_id) AS suspended
               FROM tenant_memberships m JOIN organizations g ON g.id = m.org_id WHERE m.user_id = s.user_id) o
           CROSS JOIN LATERAL (
               SELECT array_agg(m.project_id ORDER BY m.project_id) AS ids, array_agg(m.role ORDER BY m.project_id) AS roles
               FROM project_memberships m WHERE m.user_id = s.user_id) p
           WHERE s.issuer = $1 AND s.issuer_sid = $2"#,
        issuer,
        issuer_sid,
    )
    .fetch_optional(conn)
    .await
}

/// What names a session at its issuer.
pub(crate) struct SessionName {
    pub issuer: String,
    pub issuer_sid: String,
}

pub(crate) async fn session_name(conn: &mut Connection, session: Uuid) -> Result<Option<SessionName>, Error> {
    sqlx::query_as!(SessionName, "SELECT issuer, issuer_sid FROM account_sessions WHERE id = $1", session,)
        .fetch_optional(conn)
        .await
}

pub(crate) struct ServiceAccountRow {
    pub account_id: Uuid,
    pub org_id: Uuid,
    pub project_id: Uuid,
    pub revoked: bool,
    pub expires_at: Option<DateTime<Utc>>,
    pub secret_hash: Vec<u8>,
    pub role: Option<String>,
}

/// A service account's key with the account it belongs to.
pub(crate) async fn service_account_key(
    conn: &mut Connection,
    key: Uuid,
) -> Result<Option<ServiceAccountRow>, Error> {
    sqlx::query_as!(
        ServiceAccountRow,
        r#"SELECT a.id AS account_id, a.org_id, a.project_id, k.expires_at, k.secret_hash, a.role,
               (k.revoked_at IS NOT NULL OR a.disabled_at IS NOT NULL) AS "revoked!"
           FROM service_account_keys k JOIN service_accounts a ON a.id = k.service_account_id
           WHERE k.id = $1"#,
        key,
    )
    .fetch_optional(conn)
    .await
}

pub(crate) async fn user_find(
    conn: &mut Connection,
    issuer: &str,
    subject: &str,
) -> Result<Option<Uuid>, Error> {
    sqlx::query_scalar!("SELECT id FROM users WHERE issuer = $1 AND subject = $2", issuer, subject)
        .fetch_optional(conn)
        .await
}

pub(crate) struct NewUser<'a> {
    pub id: Uuid,
    pub issuer: &'a str,
    pub subject: &'a str,
    pub email: Option<&'a str>,
    pub name: &'a str,
}

/// False when the person is there already: a concurrent first sign-in was faster, and is waited for.
pub(crate) async fn user_insert(
    conn: &mut Connection,
    user: NewUser<'_>,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "INSERT INTO users (id, issuer, subject, email, name, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $6) ON CONFLICT (issuer, subject) DO NOTHING",
        user.id,
        user.issuer,
        user.subject,
        user.email,
        user.name,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub(crate) struct PersonalOrg<'a> {
    pub org: Uuid,
    pub project: Uuid,
    pub user: Uuid,
    pub slug: &'a str,
    pub name: &'a str,
}

/// The organization, its project `default`, and ownership of both.
pub(crate) async fn personal_org_insert(
    conn: &mut Connection,
    new: PersonalOrg<'_>,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "WITH org AS (
            INSERT INTO organizations (id, kind, slug, name, created_at, updated_at) VALUES ($1, 'personal', $4, $5, $6, $6)
         ), membership AS (
            INSERT INTO tenant_memberships (org_id, user_id, role, created_at, updated_at) VALUES ($1, $3, 'owner', $6, $6)
         ), project AS (
            INSERT INTO projects (id, org_id, slug, name, created_at, updated_at) VALUES ($2, $1, 'default', 'Default', $6, $6)
         )
         INSERT INTO project_memberships (org_id, project_id, user_id, role, created_at, updated_at)
         VALUES ($1, $2, $3, 'owner', $6, $6)",
        new.org,
        new.project,
        new.user,
        new.slug,
        new.name,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub(crate) struct NewSession<'a> {
    pub id: Uuid,
    pub user: Uuid,
    pub issuer: &'a str,
    pub issuer_sid: &'a str,
    pub client_id: Option<&'a str>,
    pub user_agent: Option<&'a str>,
    pub source_ip: Option<&'a str>,
    pub expires_at: DateTime<Utc>,
}

/// Two requests may see a session first; one row comes of it.
pub(crate) async fn session_insert(
    conn: &mut Connection,
    new: NewSession<'_>,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "INSERT INTO account_sessions
            (id, user_id, issuer, issuer_sid, client_id, user_agent, source_ip, created_at, last_seen_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9) ON CONFLICT (issuer, issuer_sid) DO NOTHING",
        new.id,
        new.user,
        new.issuer,
        new.issuer_sid,
        new.client_id,
        new.user_agent,
        new.source_ip,
        now,
        new.expires_at,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Notes that a session is in use.
pub(crate) async fn session_touch(
    conn: &mut Connection,
    session: Uuid,
    now: DateTime<Utc>,
    alive_until: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE account_sessions SET last_seen_at = $2, expires_at = greatest(expires_at, $3)
         WHERE id = $1 AND last_seen_at < $2 AND revoked_at IS NULL",
        session,
        now,
        alive_until,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Notes that a token was made for a session that is revoked.
pub(crate) async fn session_note_refused(
    conn: &mut Connection,
    session: Uuid,
    issued_at: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE account_sessions SET last_seen_at = greatest(last_seen_at, $2) WHERE id = $1 AND revoked_at IS NOT NULL",
        session,
        issued_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Makes a revoked session into a new one; false when somebody was faster.
pub(crate) async fn session_reopen(
    conn: &mut Connection,
    revoked: Uuid,
    new: NewSession<'_>,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE account_sessions SET id = $2, user_agent = $3, source_ip = $4, created_at = $5, last_seen_at = $5,
             expires_at = $6, revoked_at = NULL, ended_by_itself = false
         WHERE id = $1 AND revoked_at IS NOT NULL AND user_id = $7 AND issuer = $8 AND issuer_sid = $9",
        revoked,
        new.id,
        new.user_agent,
        new.source_ip,
        now,
        new.expires_at,
        new.user,
        new.issuer,
        new.issuer_sid,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// True when this call revoked it.
pub(crate) async fn session_revoke(
    conn: &mut Connection,
    session: Uuid,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE account_sessions SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL",
        session,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Revokes all sessions of a person.
pub(crate) async fn sessions_revoke_of_user(
    conn: &mut Connection,
    user: Uuid,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE account_sessions SET revoked_at = $2 WHERE user_id = $1 AND revoked_at IS NULL",
        user,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Ends all sessions, and has tokens refused that other issuers made before now for sessions that are not known.
/// A session whose issuer does not name sessions counts as ended by itself: otherwise nobody of that issuer could sign in
/// until no token was seen for hours.
pub(crate) async fn sessions_end_all(conn: &mut Connection, now: DateTime<Utc>) -> Result<u64, Error> {
    sqlx::query!("UPDATE installation SET sign_ins_since = $1", now).execute(&mut *conn).await?;
    let ended = sqlx::query!(
        "UPDATE account_sessions SET revoked_at = $1, ended_by_itself = true WHERE revoked_at IS NULL",
        now,
    );
    Ok(ended.execute(conn).await?.rows_affected())
}

/// Tokens that were made before are not of sessions that are known only to another state of the database.
pub(crate) async fn sign_ins_since(conn: &mut Connection) -> Result<Option<DateTime<Utc>>, Error> {
    sqlx::query_scalar!("SELECT sign_ins_since FROM installation").fetch_one(conn).await
}

pub(crate) async fn org_suspended(conn: &mut Connection, org: Uuid) -> Result<Option<bool>, Error> {
    sqlx::query_scalar!(
        r#"SELECT suspended_at IS NOT NULL AS "suspended!" FROM organizations WHERE id = $1"#,
        org
    )
    .fetch_optional(conn)
    .await
}

pub(crate) struct ProjectPlace {
    pub org_id: Uuid,
    pub suspended: bool,
}

pub(crate) async fn project_place(
    conn: &mut Connection,
    project: Uuid,
) -> Result<Option<ProjectPlace>, Error> {
    sqlx::query_as!(
        ProjectPlace,
        r#"SELECT p.org_id, o.suspended_at IS NOT NULL AS "suspended!"
           FROM projects p JOIN organizations o ON o.id = p.org_id WHERE p.id = $1"#,
        project,
    )
    .fetch_optional(conn)
    .await
}

pub(crate) async fn pending_invitation_org(
    conn: &mut Connection,
    invitation: Uuid,
) -> Result<Option<Uuid>, Error> {
    sqlx::query_scalar!("SELECT org_id FROM invitations WHERE id = $1 AND state = 'pending'", invitation)
        .fetch_optional(conn)
        .await
}

/// One seeding at a time, over all replicas, until the transaction ends.
pub(crate) async fn seed_lock(conn: &mut Connection) -> Result<(), Error> {
    sqlx::query!(r#"SELECT pg_advisory_xact_lock(hashtext('seed_admin')) AS "locked: ()""#)
        .execute(conn)
        .await?;
    Ok(())
}

pub(crate) async fn any_platform_admin(conn: &mut Connection) -> Result<bool, Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM platform_bindings WHERE role = 'platform_admin') AS "exists!""#
    )
    .fetch_one(conn)
    .await
}

pub(crate) async fn bind_platform_admin(
    conn: &mut Connection,
    user: Uuid,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    sqlx::query!(
        "INSERT INTO platform_bindings (user_id, role, created_at) VALUES ($1, 'platform_admin', $2) ON CONFLICT DO NOTHING",
        user,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}
