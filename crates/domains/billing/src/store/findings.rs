//! What was found to disagree.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{BillingFindingId, OrgId},
};
use pg::Connection;
use serde_json::Value;
use uuid::Uuid;

use crate::model::finding::{BillingFinding, BillingFindingKind, BillingFindingState, Found};

struct Row {
    id: Uuid,
    kind: BillingFindingKind,
    subject: String,
    org_id: Option<Uuid>,
    detail: Value,
    first_seen_at: DateTime<Utc>,
    last_seen_at: DateTime<Utc>,
    resolved_at: Option<DateTime<Utc>>,
}

impl From<Row> for BillingFinding {
    fn from(row: Row) -> Self {
        Self {
            id: BillingFindingId::from(row.id),
            kind: row.kind,
            subject: row.subject,
            org_id: row.org_id.map(OrgId::from),
            detail: row.detail,
            suggestion: row.kind.suggestion().to_owned(),
            state: if row.resolved_at.is_some() {
                BillingFindingState::Resolved
            } else {
                BillingFindingState::Open
            },
            first_seen_at: row.first_seen_at,
            last_seen_at: row.last_seen_at,
            resolved_at: row.resolved_at,
        }
    }
}

pub async fn get(conn: &mut Connection, id: BillingFindingId) -> Result<Option<BillingFinding>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, kind AS "kind: BillingFindingKind", subject, org_id, detail, first_seen_at, last_seen_at, resolved_at
         FROM billing_findings WHERE id = $1"#,
        id.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(BillingFinding::from))
}

pub async fn list(
    conn: &mut Connection,
    kind: Option<BillingFindingKind>,
    state: Option<BillingFindingState>,
    page: &PageQuery,
) -> Result<Vec<BillingFinding>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, kind AS "kind: BillingFindingKind", subject, org_id, detail, first_seen_at, last_seen_at, resolved_at
         FROM billing_findings
         WHERE id > $1 AND ($3::text IS NULL OR kind = $3) AND ($4::boolean IS NULL OR (resolved_at IS NULL) = $4)
         ORDER BY id LIMIT $2"#,
        page.after(),
        page.limit(),
        kind.map(BillingFindingKind::name),
        state.map(|state| state == BillingFindingState::Open),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(BillingFinding::from).collect())
}

/// Opens what is new and renews what is open already; answers the subjects of what is new (a row that was inserted has
/// no `xmax`).
pub async fn upsert(
    conn: &mut Connection,
    kind: BillingFindingKind,
    found: &[(BillingFindingId, &Found)],
    now: DateTime<Utc>,
) -> Result<Vec<String>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"INSERT INTO billing_findings AS d (id, kind, subject, org_id, detail, first_seen_at, last_seen_at)
           SELECT f.id, $1, f.subject, f.org_id, f.detail, $2, $2
           FROM unnest($3::uuid[], $4::text[], $5::uuid[], $6::jsonb[]) AS f (id, subject, org_id, detail)
           ORDER BY f.subject
           ON CONFLICT (kind, subject) WHERE resolved_at IS NULL
               DO UPDATE SET detail = excluded.detail, last_seen_at = excluded.last_seen_at
           RETURNING d.subject, d.xmax = 0 AS "is_new!""#,
        kind.name(),
        now,
        &found.iter().map(|(id, _)| id.uuid()).collect::<Vec<Uuid>>(),
        &found.iter().map(|(_, f)| f.subject.clone()).collect::<Vec<String>>(),
        &found.iter().map(|(_, f)| f.org.map(OrgId::uuid)).collect::<Vec<_>>() as &[Option<Uuid>],
        &found.iter().map(|(_, f)| f.detail.clone()).collect::<Vec<Value>>(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().filter(|row| row.is_new).map(|row| row.subject).collect())
}

/// How far a look went: what lies within and was not seen is gone.
#[derive(Clone, Copy)]
pub enum Reach<'a> {
    /// Every subject that begins so.
    All(&'a str),
    /// These subjects.
    Only(&'a [String]),
}

pub async fn resolve_missing(
    conn: &mut Connection,
    kind: BillingFindingKind,
    seen: &[String],
    reach: Reach<'_>,
    now: DateTime<Utc>,
) -> Result<u64, sqlx::Error> {
    let (prefix, only) = match reach {
        Reach::All(prefix) => (Some(prefix), None),
        Reach::Only(subjects) => (None, Some(subjects)),
    };
    let done = sqlx::query!(
        "UPDATE billing_findings SET resolved_at = $5
         WHERE resolved_at IS NULL AND kind = $1 AND subject <> ALL ($2)
             AND ($3::text IS NULL OR starts_with(subject, $3)) AND ($4::text[] IS NULL OR subject = ANY ($4))",
        kind.name(),
        seen,
        prefix,
        only,
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// The clock of this process is right again; findings of processes that are gone are over, too.
pub async fn clocks_agree(
    conn: &mut Connection,
    subject: &str,
    unseen_since: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE billing_findings SET resolved_at = $3
         WHERE resolved_at IS NULL AND kind = 'clock_skew' AND (subject = $1 OR last_seen_at < $2)",
        subject,
        unseen_since,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// How many of each kind are open.
pub async fn open(conn: &mut Connection) -> Result<Vec<(BillingFindingKind, i64)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT kind AS "kind: BillingFindingKind", count(*) AS "count!" FROM billing_findings
           WHERE resolved_at IS NULL GROUP BY kind"#
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.kind, row.count)).collect())
}

/// The subjects of open findings of a kind.
pub async fn open_subjects(
    conn: &mut Connection,
    kind: BillingFindingKind,
    limit: i64,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT subject FROM billing_findings WHERE resolved_at IS NULL AND kind = $1 ORDER BY id LIMIT $2",
        kind.name(),
        limit,
    )
    .fetch_all(conn)
    .await
}
