//! Notifications.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{NotificationId, OrgId, ProjectId, UserId},
};
use pg::Connection;
use uuid::Uuid;

use crate::model::notice::{Notice, NoticeKind, Notification, ResourceKind, Severity};

/// Tells `people` (id of each notification, person), each once for each event. Their rows are locked in one order, so
/// that two who tell the same people do not wait for each other in a ring.
pub async fn insert(
    conn: &mut Connection,
    event: Uuid,
    notice: &Notice,
    people: &[(NotificationId, UserId)],
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    let mut sorted: Vec<(Uuid, Uuid)> = people.iter().map(|(id, user)| (user.uuid(), id.uuid())).collect();
    sorted.sort_unstable();
    let (persons, ids): (Vec<Uuid>, Vec<Uuid>) = sorted.into_iter().unzip();
    let (kind, id) = notice.target.resource.clone().unzip();
    sqlx::query!(
        "WITH wanted AS (
             SELECT w.person_id, w.id FROM unnest($1::uuid[], $2::uuid[]) AS w (person_id, id)
             WHERE NOT EXISTS (SELECT FROM notifications n WHERE n.person_id = w.person_id AND n.event_id = $3)
             ORDER BY w.person_id
         ), numbered AS (
             INSERT INTO notification_people AS p (person_id, last_seq, updated_at) SELECT person_id, 1, $12 FROM wanted
             ON CONFLICT (person_id) DO UPDATE SET last_seq = p.last_seq + 1 RETURNING person_id, last_seq
         )
         INSERT INTO notifications (id, person_id, seq, event_id, kind, severity, title, text, org_id, project_id,
             resource_kind, resource_id, created_at)
         SELECT w.id, w.person_id, n.last_seq, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12
         FROM wanted w JOIN numbered n ON n.person_id = w.person_id",
        &persons,
        &ids,
        event,
        notice.kind.name(),
        notice.kind.severity().name(),
        notice.title,
        notice.text,
        notice.target.org_id.map(|id| id.uuid()) as Option<Uuid>,
        notice.target.project_id.map(|id| id.uuid()) as Option<Uuid>,
        kind.map(ResourceKind::name),
        id as Option<String>,
        now,
    )
    .execute(&mut *conn)
    .await?;
    // Wakes their streams when this commits.
    sqlx::query!("SELECT pg_notify('gpuaas_notify', p::text) FROM unnest($1::uuid[]) p", &persons)
        .fetch_all(conn)
        .await?;
    Ok(())
}

struct Row {
    id: Uuid,
    seq: i64,
    kind: NoticeKind,
    severity: Severity,
    title: String,
    text: String,
    org_id: Option<Uuid>,
    project_id: Option<Uuid>,
    resource_kind: Option<ResourceKind>,
    resource_id: Option<String>,
    read_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl From<Row> for Notification {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            seq: row.seq,
            kind: row.kind,
            severity: row.severity,
            title: row.title,
            text: row.text,
            org_id: row.org_id.map(OrgId::from),
            project_id: row.project_id.map(ProjectId::from),
            resource_kind: row.resource_kind,
            resource_id: row.resource_id,
            read_at: row.read_at,
            created_at: row.created_at,
        }
    }
}

/// Newest first.
pub async fn list(
    conn: &mut Connection,
    user: UserId,
    unread: bool,
    page: &PageQuery,
) -> Result<Vec<Notification>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, seq, kind AS "kind: NoticeKind", severity AS "severity: Severity", title, text, org_id, project_id,
             resource_kind AS "resource_kind: ResourceKind", resource_id, read_at, created_at
         FROM notifications WHERE person_id = $1 AND id < $2 AND (NOT $3 OR read_at IS NULL) ORDER BY id DESC LIMIT $4"#,
        user.uuid(),
        page.before(),
        unread,
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Notification::from).collect())
}

/// Those after a number, oldest first.
pub async fn after(
    conn: &mut Connection,
    user: UserId,
    seq: i64,
    limit: i64,
) -> Result<Vec<Notification>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, seq, kind AS "kind: NoticeKind", severity AS "severity: Severity", title, text, org_id, project_id,
             resource_kind AS "resource_kind: ResourceKind", resource_id, read_at, created_at
         FROM notifications WHERE person_id = $1 AND seq > $2 ORDER BY seq LIMIT $3"#,
        user.uuid(),
        seq,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Notification::from).collect())
}

/// The number of the newest; nothing was told yet when it is 0.
pub async fn last_seq(conn: &mut Connection, user: UserId) -> Result<i64, sqlx::Error> {
    let seq =
        sqlx::query_scalar!("SELECT last_seq FROM notification_people WHERE person_id = $1", user.uuid());
    Ok(seq.fetch_optional(conn).await?.unwrap_or(0))
}

/// What was read stays read from when it first was.
pub async fn read(
    conn: &mut Connection,
    user: UserId,
    id: NotificationId,
    now: DateTime<Utc>,
) -> Result<Option<Notification>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE notifications SET read_at = coalesce(read_at, $3) WHERE person_id = $1 AND id = $2
         RETURNING id, seq, kind AS "kind: NoticeKind", severity AS "severity: Severity", title, text, org_id,
             project_id, resource_kind AS "resource_kind: ResourceKind", resource_id, read_at, created_at"#,
        user.uuid(),
        id.uuid(),
        now,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Notification::from))
}

/// Up to and with a number: what came since was not seen.
pub async fn read_all(
    conn: &mut Connection,
    user: UserId,
    up_to_seq: i64,
    now: DateTime<Utc>,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE notifications SET read_at = $3 WHERE person_id = $1 AND seq <= $2 AND read_at IS NULL",
        user.uuid(),
        up_to_seq,
        now,
    );
    Ok(done.execute(conn).await?.rows_affected())
}
