//! Invitations. A state changes only by a step of the lifecycle, with compare-and-swap on the version.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, PageQuery, Problem, Role,
    ids::{InvitationId, OrgId, ProjectId, UserId},
};
use lifecycle::Named as _;
use pg::{Connection, Swap};
use uuid::Uuid;

use crate::model::{
    invitation::{
        Invitation, InvitationState, InvitedProject, OpenInvitation, ReceivedInvitation, RecentInvitations,
        SentInvitation, Standing,
    },
    role::{MemberRole, PlatformRole},
};

struct Row {
    id: Uuid,
    org_id: Uuid,
    email: String,
    role: MemberRole,
    project_id: Option<Uuid>,
    project_role: Option<MemberRole>,
    state: InvitationState,
    invited_by: Uuid,
    accepted_by: Option<Uuid>,
    declined_by: Option<Uuid>,
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
            project_id: row.project_id.map(ProjectId::from),
            project_role: row.project_role,
            state: row.state,
            invited_by: row.invited_by.into(),
            accepted_by: row.accepted_by.map(UserId::from),
            declined_by: row.declined_by.map(UserId::from),
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
    pub project: Option<(ProjectId, MemberRole)>,
    pub token_hash: [u8; 32],
    pub invited_by: UserId,
    pub expires_at: DateTime<Utc>,
    pub now: DateTime<Utc>,
}

pub async fn insert(conn: &mut Connection, new: &NewInvitation<'_>) -> Result<Invitation, Failure> {
    sqlx::query_as!(
        Row,
        r#"INSERT INTO invitations (id, org_id, email, role, token_hash, invited_by, expires_at, created_at, updated_at,
               project_id, project_role)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9, $10)
           RETURNING id, org_id, email, role AS "role: MemberRole", project_id,
               project_role AS "project_role: MemberRole", state AS "state: InvitationState", invited_by, accepted_by,
               declined_by, expires_at, version, created_at, updated_at"#,
        new.id.uuid(),
        new.org.uuid(),
        new.email,
        new.role.name(),
        &new.token_hash[..],
        new.invited_by.uuid(),
        new.expires_at,
        new.now,
        new.project.map(|(project, _)| project.uuid()),
        new.project.map(|(_, role)| role.name()),
    )
    .fetch_one(conn)
    .await
    .map(Invitation::from)
    .map_err(|error| {
        super::violated(
            error,
            &[
                ("invitations_one_pending", || {
                    Problem::new(Code::AlreadyExists, "This address already has a pending invitation.")
                        .suggest("Revoke the pending invitation first.")
                }),
                ("invitations_project_fkey", || Problem::not_found("project")),
            ],
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
        r#"SELECT id, org_id, email, role AS "role: MemberRole", project_id,
               project_role AS "project_role: MemberRole", state AS "state: InvitationState", invited_by, accepted_by,
               declined_by, expires_at, version, created_at, updated_at
           FROM invitations WHERE org_id = $1 AND id = $2"#,
        org.uuid(),
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Invitation::from))
}

/// The invitation and its token's hash, held until the transaction ends. Its project cannot be deleted before that either:
/// whoever deletes one locks it before the invitations to it, as here.
pub async fn lock(
    conn: &mut Connection,
    org: OrgId,
    id: InvitationId,
) -> Result<Option<(Invitation, Vec<u8>)>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT p.id FROM invitations i JOIN projects p ON p.org_id = i.org_id AND p.id = i.project_id
         WHERE i.org_id = $1 AND i.id = $2 FOR KEY SHARE OF p",
        org.uuid(),
        id.uuid(),
    )
    .fetch_optional(&mut *conn)
    .await?;
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
        r#"SELECT id, org_id, email, role AS "role: MemberRole", project_id,
               project_role AS "project_role: MemberRole", state AS "state: InvitationState", invited_by, accepted_by,
               declined_by, expires_at, version, created_at, updated_at
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

/// Who the invited person was, when it was they who ended the invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    Nobody,
    Accepted(UserId),
    Declined(UserId),
}

/// Applies a step that the lifecycle allowed.
pub async fn transition(
    conn: &mut Connection,
    invitation: &Invitation,
    to: InvitationState,
    by: AnsweredBy,
    now: DateTime<Utc>,
) -> Result<Swap<Invitation>, sqlx::Error> {
    let (accepted_by, declined_by) = match by {
        AnsweredBy::Nobody => (None, None),
        AnsweredBy::Accepted(user) => (Some(user), None),
        AnsweredBy::Declined(user) => (None, Some(user)),
    };
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE invitations SET state = $3, accepted_by = $4, declined_by = $7, version = version + 1, updated_at = $5
           WHERE org_id = $1 AND id = $2 AND version = $6
           RETURNING id, org_id, email, role AS "role: MemberRole", project_id,
               project_role AS "project_role: MemberRole", state AS "state: InvitationState", invited_by, accepted_by,
               declined_by, expires_at, version, created_at, updated_at"#,
        invitation.org_id.uuid(),
        invitation.id.uuid(),
        to.name(),
        accepted_by.map(UserId::uuid),
        now,
        invitation.version,
        declined_by.map(UserId::uuid),
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
    let sent = get_sent(conn, id).await?;
    Ok(sent.filter(|sent| sent.standing(now) == Standing::Open).map(|sent| sent.invitation))
}

/// The invitation whatever became of it, as its receiver is told of it.
pub async fn get_sent(
    conn: &mut Connection,
    id: InvitationId,
) -> Result<Option<SentInvitation>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT i.id, i.org_id, o.name AS org_name, i.email, i.role AS "role: MemberRole",
               p.name AS "project_name?", i.project_role AS "project_role: MemberRole",
               coalesce(u.name, '') AS "invited_by!", i.expires_at, i.state AS "state: InvitationState", i.accepted_by,
               i.declined_by, i.token_hash
           FROM invitations i JOIN organizations o ON o.id = i.org_id LEFT JOIN users u ON u.id = i.invited_by
               LEFT JOIN projects p ON p.org_id = i.org_id AND p.id = i.project_id
           WHERE i.id = $1"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| SentInvitation {
        invitation: OpenInvitation {
            id: row.id.into(),
            org_id: row.org_id.into(),
            org_name: row.org_name,
            email: row.email,
            role: row.role,
            project: row.project_role.map(|role| InvitedProject { name: row.project_name, role }),
            invited_by: row.invited_by,
            expires_at: row.expires_at,
        },
        state: row.state,
        accepted_by: row.accepted_by.map(UserId::from),
        is_declined: row.declined_by.is_some(),
        token_hash: row.token_hash,
    }))
}

/// The open invitations of the caller's own address, when it is proved to be theirs; `only` one of them.
pub async fn received(
    conn: &mut Connection,
    only: Option<InvitationId>,
    page: &PageQuery,
    now: DateTime<Utc>,
) -> Result<Vec<ReceivedInvitation>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT id AS "id!", org_id AS "org_id!", org_name AS "org_name!", email AS "email!", role AS "role!: MemberRole",
               project_id, project_name, project_role AS "project_role: MemberRole", invited_by AS "invited_by!",
               invited_by_email, expires_at AS "expires_at!", created_at AS "created_at!"
           FROM own_invitations($1) WHERE id > $2 AND ($4::uuid IS NULL OR id = $4) ORDER BY id LIMIT $3"#,
        now,
        page.after(),
        page.limit(),
        only.map(InvitationId::uuid),
    )
    .fetch_all(conn)
    .await?;
    let received = rows.into_iter().map(|row| ReceivedInvitation {
        id: row.id.into(),
        org_id: row.org_id.into(),
        org_name: row.org_name,
        email: row.email,
        role: row.role,
        project_id: row.project_id.map(ProjectId::from),
        project_name: row.project_name,
        project_role: row.project_role,
        invited_by: row.invited_by,
        invited_by_email: row.invited_by_email,
        expires_at: row.expires_at,
        created_at: row.created_at,
    });
    Ok(received.collect())
}

/// The roles that whoever sent the invitation has now.
pub async fn inviter_roles(conn: &mut Connection, id: InvitationId) -> Result<Vec<Role>, sqlx::Error> {
    let rows =
        sqlx::query!(r#"SELECT place AS "place!", role AS "role!" FROM inviter_roles($1)"#, id.uuid(),)
            .fetch_all(conn)
            .await?;
    let held = rows.into_iter().filter_map(|row| match row.place.as_str() {
        "org" => row.role.parse::<MemberRole>().ok().map(MemberRole::in_org),
        "project" => row.role.parse::<MemberRole>().ok().map(MemberRole::in_project),
        _ => row.role.parse::<PlatformRole>().ok().map(PlatformRole::role),
    });
    Ok(held.collect())
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
        r#"SELECT id, org_id, email, role AS "role: MemberRole", project_id,
               project_role AS "project_role: MemberRole", state AS "state: InvitationState", invited_by, accepted_by,
               declined_by, expires_at, version, created_at, updated_at
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
        r#"SELECT id, org_id, email, role AS "role: MemberRole", project_id,
               project_role AS "project_role: MemberRole", state AS "state: InvitationState", invited_by, accepted_by,
               declined_by, expires_at, version, created_at, updated_at
           FROM invitations WHERE org_id = $1 AND lower(email) = lower($2) AND state = 'pending' FOR UPDATE"#,
        org.uuid(),
        email,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Invitation::from))
}
