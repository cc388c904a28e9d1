//! Recordings: what there is, and which gateway writes.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{AllocationId, OrgId, ProjectId, RecordingViewId, TerminalSessionId},
    policy::TerminalRecording,
    principal::{PrincipalId, PrincipalKind},
};
use pg::{Connection, WriteTx};
use uuid::Uuid;

use crate::model::recording::SessionRecording;

struct Row {
    session_id: Uuid,
    allocation_id: Uuid,
    principal_kind: String,
    principal_id: Uuid,
    mode: String,
    started_at: DateTime<Utc>,
    chunks: i64,
    end_sequence: i64,
    bytes: i64,
    sealed_at: Option<DateTime<Utc>>,
    complete: Option<bool>,
    tampering: Option<String>,
    expires_at: DateTime<Utc>,
    deleted_at: Option<DateTime<Utc>>,
}

impl From<Row> for SessionRecording {
    fn from(row: Row) -> Self {
        let principal = if row.principal_kind == "user" {
            PrincipalId::User(row.principal_id.into())
        } else {
            PrincipalId::ServiceAccount(row.principal_id.into())
        };
        Self {
            session_id: row.session_id.into(),
            allocation_id: row.allocation_id.into(),
            principal,
            mode: mode_parse(&row.mode),
            started_at: row.started_at,
            chunks: row.chunks,
            output_bytes: row.end_sequence,
            stored_bytes: row.bytes,
            sealed_at: row.sealed_at,
            complete: row.complete,
            tampering: row.tampering,
            expires_at: row.expires_at,
            deleted_at: row.deleted_at,
        }
    }
}

/// The database has no other names; if it had, everything would be recorded.
fn mode_parse(name: &str) -> TerminalRecording {
    lifecycle::name_parse(name).unwrap_or(TerminalRecording::OutputAndInput)
}

fn kind(principal: PrincipalId) -> &'static str {
    match principal.kind() {
        PrincipalKind::User => "user",
        PrincipalKind::ServiceAccount => "service_account",
    }
}

pub struct NewRecording {
    pub session: TerminalSessionId,
    pub org: OrgId,
    pub project: ProjectId,
    pub allocation: AllocationId,
    pub principal: PrincipalId,
    pub mode: TerminalRecording,
    pub started_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

/// A recording that one gateway writes, until the next one opens it.
#[derive(Clone, Debug)]
pub struct Opened {
    pub epoch: i64,
    pub mode: TerminalRecording,
    /// What was found changed before.
    pub tampering: Option<String>,
}

/// Makes the recording, or takes it over. What was recorded of a session stays recorded: the mode only becomes stricter.
/// Nothing when it is sealed.
pub async fn open(conn: &mut Connection, new: &NewRecording) -> Result<Option<Opened>, sqlx::Error> {
    let row = sqlx::query!(
        "INSERT INTO terminal_recordings (session_id, org_id, project_id, allocation_id, principal_kind, principal_id, mode,
               started_at, expires_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
           ON CONFLICT (session_id) DO UPDATE SET epoch = terminal_recordings.epoch + 1,
               mode = CASE WHEN excluded.mode = 'output_and_input' THEN excluded.mode ELSE terminal_recordings.mode END
               WHERE terminal_recordings.sealed_at IS NULL
           RETURNING epoch, mode, tampering",
        new.session.uuid(),
        new.org.uuid(),
        new.project.uuid(),
        new.allocation.uuid(),
        kind(new.principal),
        new.principal.uuid(),
        new.mode.name(),
        new.started_at,
        new.expires_at,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Opened { epoch: row.epoch, mode: mode_parse(&row.mode), tampering: row.tampering }))
}

/// What is stored, as far as was noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    pub chunks: i64,
    pub end_sequence: i64,
    pub bytes: i64,
    /// The digest of the last of these chunks; nothing before the first.
    pub head: Option<Vec<u8>>,
}

/// Whether a gateway that notes goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    More,
    /// It writes no more, and has stored everything: whoever comes next need not wait.
    Released,
}

/// False when another gateway has taken over, or it is sealed. Who was replaced still notes what it stores: the next one waits
/// for it, and goes on after that.
pub async fn note_stored(
    conn: &mut Connection,
    session: TerminalSessionId,
    epoch: i64,
    stored: &Stored,
    writes: Writes,
) -> Result<bool, sqlx::Error> {
    let noted = sqlx::query_scalar!(
        r#"UPDATE terminal_recordings SET
               end_sequence = CASE WHEN $3 >= chunks THEN $4 ELSE end_sequence END,
               bytes = CASE WHEN $3 >= chunks THEN $5 ELSE bytes END,
               head = CASE WHEN $3 >= chunks THEN $6 ELSE head END,
               chunks = greatest(chunks, $3),
               released_epoch = CASE WHEN $7 THEN greatest(released_epoch, $2) ELSE released_epoch END
           WHERE session_id = $1 AND sealed_at IS NULL
           RETURNING epoch = $2 AS "writes!""#,
        session.uuid(),
        epoch,
        stored.chunks,
        stored.end_sequence,
        stored.bytes,
        stored.head,
        writes == Writes::Released,
    )
    .fetch_optional(conn)
    .await?;
    Ok(noted.unwrap_or(false))
}

/// What is stored, and whether the attachment with this epoch, and all before it, write no more.
pub async fn stored(
    conn: &mut Connection,
    session: TerminalSessionId,
    epoch: i64,
) -> Result<(Stored, bool), sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT chunks, end_sequence, bytes, head, released_epoch >= $2 AS "released!"
           FROM terminal_recordings WHERE session_id = $1"#,
        session.uuid(),
        epoch,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map_or_else(
        || (Stored::default(), true),
        |row| {
            let stored = Stored {
                chunks: row.chunks,
                end_sequence: row.end_sequence,
                bytes: row.bytes,
                head: row.head,
            };
            (stored, row.released)
        },
    ))
}

/// What was found changed in the object storage. The first one stays.
pub async fn note_tampering(
    conn: &mut Connection,
    session: TerminalSessionId,
    code: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE terminal_recordings SET tampering = coalesce(tampering, $2) WHERE session_id = $1",
        session.uuid(),
        code,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// How a recording was sealed.
pub struct SealedAs<'a> {
    pub chunks: i64,
    pub end_sequence: i64,
    pub head: &'a [u8],
    pub complete: bool,
    pub tampering: Option<&'a str>,
}

/// The first seal counts.
pub async fn note_sealed(
    conn: &mut Connection,
    session: TerminalSessionId,
    sealed: &SealedAs<'_>,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE terminal_recordings SET chunks = $2, end_sequence = $3, head = $4, complete = $5,
             tampering = coalesce(tampering, $6), sealed_at = $7, attempts = 0, next_attempt_at = NULL
         WHERE session_id = $1 AND sealed_at IS NULL",
        session.uuid(),
        sealed.chunks,
        sealed.end_sequence,
        sealed.head,
        sealed.complete,
        sealed.tampering,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What is recorded of a session already.
pub async fn mode(
    conn: &mut Connection,
    session: TerminalSessionId,
) -> Result<Option<TerminalRecording>, sqlx::Error> {
    let mode =
        sqlx::query_scalar!("SELECT mode FROM terminal_recordings WHERE session_id = $1", session.uuid())
            .fetch_optional(conn)
            .await?;
    Ok(mode.map(|mode| mode_parse(&mode)))
}

pub async fn get(
    conn: &mut Connection,
    allocation: AllocationId,
    session: TerminalSessionId,
) -> Result<Option<SessionRecording>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        "SELECT session_id, allocation_id, principal_kind, principal_id, mode, started_at,
               chunks, end_sequence, bytes, sealed_at, complete, tampering, expires_at, deleted_at
           FROM terminal_recordings WHERE session_id = $1 AND allocation_id = $2",
        session.uuid(),
        allocation.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(SessionRecording::from))
}

/// Of an allocation; only those of `principal`, when it is given.
pub async fn list(
    conn: &mut Connection,
    allocation: AllocationId,
    principal: Option<PrincipalId>,
    page: &PageQuery,
) -> Result<Vec<SessionRecording>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT session_id, allocation_id, principal_kind, principal_id, mode, started_at,
               chunks, end_sequence, bytes, sealed_at, complete, tampering, expires_at, deleted_at
           FROM terminal_recordings
           WHERE allocation_id = $1 AND session_id > $2
               AND ($3::text IS NULL OR (principal_kind = $3 AND principal_id = $4))
           ORDER BY session_id LIMIT $5",
        allocation.uuid(),
        page.after(),
        principal.map(kind),
        principal.map(|principal| principal.uuid()),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(SessionRecording::from).collect())
}

// ---- views

pub async fn view_insert(
    tx: &mut WriteTx,
    id: RecordingViewId,
    org: OrgId,
    session: TerminalSessionId,
    principal: PrincipalId,
    (created_at, expires_at): (DateTime<Utc>, DateTime<Utc>),
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO terminal_recording_views (id, org_id, session_id, principal_kind, principal_id, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        id.uuid(),
        org.uuid(),
        session.uuid(),
        kind(principal),
        principal.uuid(),
        created_at,
        expires_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Whether somebody has opened this view of this recording, and it has not expired.
pub async fn view_is_open(
    conn: &mut Connection,
    id: RecordingViewId,
    session: TerminalSessionId,
    principal: PrincipalId,
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM terminal_recording_views
               WHERE id = $1 AND session_id = $2 AND principal_kind = $3 AND principal_id = $4 AND expires_at > $5) AS "open!""#,
        id.uuid(),
        session.uuid(),
        kind(principal),
        principal.uuid(),
        now,
    )
    .fetch_one(conn)
    .await
}

pub async fn view_forget_expired(
    conn: &mut Connection,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "DELETE FROM terminal_recording_views WHERE id IN
             (SELECT id FROM terminal_recording_views WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)",
        now,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
