//! Invitations. A state changes only by a step of the lifecycle, with compare-and-swap on the version.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, PageQuery, Problem,
    ids::{InvitationId, OrgId, UserId},
};
use lifecycle::Named as _;
use pg::{Connection, Swap};
use uuid::Uuid;

use crate::model::{
    invitation::{Invitation, InvitationState, OpenInvitation, RecentInvitations},
    role::MemberRole,
};

struct Row {
    id: Uuid,
    org_id: Uuid,
    email: String,
    role: MemberRole,
    state: InvitationState,
    invited_by: Uuid,
    accepted_by: Option<Uuid>,
    expires_at: DateTime<Utc>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for Invitation {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            org_id: row.org_id.into(),
            email: row.email,
            role: row.role,
            state: row.state,
            invited_by: row.invited_by.into(),
            accepted_by: row.accepted_by.map(UserId::from),
            expires_at: row.expires_at,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

pub struct NewInvitation<'a> {
    pub id: InvitationId,
    pub org: OrgId,
    pub email: &'a str,
    pub role: MemberRole,
    pub token_hash: [u8; 32],
    pub invited_by: UserId,
    pub expires_at: DateTime<Utc>,
    pub now: DateTime<Utc>,
}

pub async fn insert(conn: &mut Connection, new: &NewInvitation<'_>) -> Result<Invitation, Failure> {
    sqlx::query_as!(
        Row,
        r#"INSERT INTO invitations (id, org_id, email, role, token_hash, invited_by, expires_at, created_at, updated_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)
           RETURNING id, org_id, email, role AS "role: MemberRole", state AS "state: InvitationState", invited_by,
               accepted_by, expires_at, version, created_at, updated_at"#,
        new.id.uuid(),
        new.org.uuid(),
        new.email,
        new.role.name(),
        &new.token_hash[..],
        new.invited_by.uuid(),
        new.expires_at,
        new.now,
    )
    .fetch_one(conn)
    .await
    .map(Invitation::from)
    .map_err(|error| {
        super::violated(
            error,
            &[("invitations_one_pending", || {
                Problem::new(Code::AlreadyExists, "This address already has a pending invitation.")
                    .suggest("Revoke the pending invitation first.")
            })],
        )
    })
}

pub async fn get(
    conn: &mut Connection,
    org: OrgId,
    id: InvitationId,
) -> Result<Option<Invitation>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, email, role AS "role: MemberRole", state AS "state: InvitationState", invited_by, accepted_by,
               expires_at, version, created_at, updated_at
           FROM invitations WHERE org_id = $1 AND id = $2"#,
        org.uuid(),
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Invitation::from))
}

/// The invitation and its token's hash, held until the transaction ends.
pub async fn lock(
    conn: &mut Connection,
    org: OrgId,
    id: InvitationId,
) -> Result<Option<(Invitation, Vec<u8>)>, sqlx::Error> {
    let hash = sqlx::query_scalar!(
        "SELECT token_hash FROM invitations WHERE org_id = $1 AND id = $2 FOR UPDATE",
        org.uuid(),
        id.uuid(),
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(hash) = hash else { return Ok(None) };
    // A second statement sees what a transaction that held the lock before us has committed.
    Ok(get(conn, org, id).await?.map(|invitation| (invitation, hash)))
}

pub async fn list(
    conn: &mut Connection,
    org: OrgId,
    state: Option<InvitationState>,
    page: &PageQuery,
) -> Result<Vec<Invitation>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, email, role AS "role: MemberRole", state AS "state: InvitationState", invited_by, accepted_by,
               expires_at, version, created_at, updated_at
           FROM invitations WHERE org_id = $1 AND id > $2 AND ($4::text IS NULL OR state = $4)
           ORDER BY id LIMIT $3"#,
        org.uuid(),
        page.after(),
        page.limit(),
        state.map(InvitationState::name),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Invitation::from).collect())
}

/// Applies a step that the lifecycle allowed. `accepted_by` belongs to the state `accepted` only.
pub async fn transition(
    conn: &mut Connection,
    invitation: &Invitation,
    to: InvitationState,
    accepted_by: Option<UserId>,
    now: DateTime<Utc>,
) -> Result<Swap<Invitation>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE invitations SET state = $3, accepted_by = $4, version = version + 1, updated_at = $5
           WHERE org_id = $1 AND id = $2 AND version = $6
           RETURNING id, org_id, email, role AS "role: MemberRole", state AS "state: InvitationState", invited_by,
               accepted_by, expires_at, version, created_at, updated_at"#,
        invitation.org_id.uuid(),
        invitation.id.uuid(),
        to.name(),
        accepted_by.map(UserId::uuid),
        now,
        invitation.version,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let current = match row {
        Some(_) => None,
        None => get(conn, invitation.org_id, invitation.id).await?.map(|i| i.version),
    };
    Ok(Swap::from_update(row.map(Invitation::from), current))
}

/// The invitation when it is pending and its time is not over.
pub async fn get_open(
    conn: &mut Connection,
    id: InvitationId,
    now: DateTime<Utc>,
) -> Result<Option<OpenInvitation>, sqlx::Error> {
    sqlx::query_as!(
        OpenInvitation,
        r#"SELECT i.id, i.org_id, o.name AS org_name, i.email, i.role AS "role: MemberRole",
               coalesce(u.name, '') AS "invited_by!", i.expires_at
           FROM invitations i JOIN organizations o ON o.id = i.org_id LEFT JOIN users u ON u.id = i.invited_by
           WHERE i.id = $1 AND i.state = 'pending' AND i.expires_at > $2"#,
        id.uuid(),
        now,
    )
    .fetch_optional(conn)
    .await
}

/// Counts the invitations since `since`. The organization is locked: whoever else invites in it waits.
pub async fn recent_lock_count(
    conn: &mut Connection,
    org: OrgId,
    email: &str,
    since: DateTime<Utc>,
) -> Result<RecentInvitations, sqlx::Error> {
    sqlx::query_scalar!("SELECT id FROM organizations WHERE id = $1 FOR NO KEY UPDATE", org.uuid())
        .fetch_optional(&mut *conn)
        .await?;
    sqlx::query_as!(
        RecentInvitations,
        r#"SELECT count(*) AS "all!", count(*) FILTER (WHERE lower(email) = lower($2)) AS "to_address!"
           FROM invitations WHERE org_id = $1 AND created_at > $3"#,
        org.uuid(),
        email,
        since,
    )
    .fetch_one(conn)
    .await
}

/// A pending invitation of this address whose time is over.
pub async fn overdue_of_email(
    conn: &mut Connection,
    org: OrgId,
    email: &str,
    now: DateTime<Utc>,
) -> Result<Option<Invitation>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, email, role AS "role: MemberRole", state AS "state: InvitationState", invited_by, accepted_by,
               expires_at, version, created_at, updated_at
           FROM invitations
           WHERE org_id = $1 AND lower(email) = lower($2) AND state = 'pending' AND expires_at <= $3 FOR UPDATE"#,
        org.uuid(),
        email,
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Invitation::from))
}

/// Pending invitations of all organizations whose time is over, oldest first.
pub async fn overdue(
    conn: &mut Connection,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(OrgId, InvitationId)>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT org_id, id FROM invitations WHERE state = 'pending' AND expires_at <= $1 ORDER BY id LIMIT $2",
        now,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.org_id.into(), row.id.into())).collect())
}

/// The pending invitation of this address, if there is one, held until the transaction ends.
pub async fn pending_of_email(
    conn: &mut Connection,
    org: OrgId,
    email: &str,
) -> Result<Option<Invitation>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, org_id, email, role AS "role: MemberRole", state AS "state: InvitationState", invited_by, accepted_by,
               expires_at, version, created_at, updated_at
           FROM invitations WHERE org_id = $1 AND lower(email) = lower($2) AND state = 'pending' FOR UPDATE"#,
        org.uuid(),
        email,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Invitation::from))
}
