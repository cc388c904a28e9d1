//! What was used, added up and one by one. The organization is named in every statement, and behind row-level
//! security for those who are of one.

use chrono::{DateTime, Utc};
use kernel::ids::{AllocationId, MeterId, OrgId, ProjectId, UserId};
use pg::Connection;
use uuid::Uuid;

use crate::model::{
    account::PostingKind,
    focus::Grant,
    meter::{MeterSource, MeterUnit},
    report::{After, Every, Group, Groups, Span, UsageKind, UsageRecord, UsageRow},
};

/// What is looked at.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub project: Option<ProjectId>,
    pub person: Option<UserId>,
    pub sku: Option<String>,
    pub allocation: Option<AllocationId>,
}

/// How it is added up.
#[derive(Clone, Debug)]
pub struct Sums {
    pub groups: Groups,
    pub every: Option<Every>,
    pub span: Span,
}

/// Added up, in the order of their keys; each with its key.
pub async fn usage(
    conn: &mut Connection,
    org: OrgId,
    sums: &Sums,
    filter: &Filter,
    after: &str,
    limit: i64,
) -> Result<Vec<(String, UsageRow)>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT r.key AS "key!", r.at, r.project_id, r.person_id, r.sku, r.app_instance_id, r.allocation_id, r.unit AS "unit!: MeterUnit",
             r.currency AS "currency!", r.seconds AS "seconds!", r.unit_seconds AS "unit_seconds!", r.amount AS "amount!"
           FROM (
             SELECT g.at, g.project_id, g.person_id, g.sku, g.app_instance_id, g.allocation_id, g.unit, g.currency, g.seconds,
                 g.unit_seconds, g.amount, concat(to_char(g.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24'), '|', g.project_id, '|', g.person_id, '|',
                 g.sku, '|', g.app_instance_id, '|', g.allocation_id, '|', g.unit, '|', g.currency) COLLATE "C" AS key
             FROM (
               SELECT u.at, u.project_id, u.person_id, u.sku, u.app_instance_id, u.allocation_id, u.unit, u.currency,
                   sum(u.seconds)::bigint AS seconds, sum(u.seconds * u.units)::bigint AS unit_seconds,
                   sum(u.amount_minor)::bigint AS amount
               FROM (
                 SELECT CASE WHEN $2::text IS NOT NULL THEN date_trunc($2, r.window_start, 'UTC') END AS at,
                     CASE WHEN $3 THEN m.project_id END AS project_id, CASE WHEN $4 THEN m.person_id END AS person_id,
                     CASE WHEN $5 THEN m.sku END AS sku, CASE WHEN $6 THEN m.app_instance_id END AS app_instance_id,
                     CASE WHEN $7 THEN m.allocation_id END AS allocation_id, m.unit, m.currency, m.units, r.amount_minor,
                     CASE r.kind WHEN 'usage' THEN 1 ELSE -1 END
                         * extract(epoch FROM r.window_end - r.window_start)::bigint AS seconds
                 FROM usage_records r JOIN meters m ON m.id = r.meter_id
                 WHERE r.org_id = $1 AND m.org_id = $1 AND r.window_start >= $8 AND r.window_start < $9
                     AND ($10::uuid IS NULL OR m.project_id = $10) AND ($11::uuid IS NULL OR m.person_id = $11)
                     AND ($12::text IS NULL OR m.sku = $12) AND ($13::uuid IS NULL OR m.allocation_id = $13)
               ) AS u
               GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
             ) AS g
           ) AS r
           WHERE r.key > $14 COLLATE "C" ORDER BY r.key LIMIT $15"#,
        org.uuid(),
        sums.every.map(Every::name),
        sums.groups.has(Group::Project),
        sums.groups.has(Group::Person),
        sums.groups.has(Group::Sku),
        sums.groups.has(Group::AppInstance),
        sums.groups.has(Group::Allocation),
        sums.span.from,
        sums.span.to,
        filter.project.map(ProjectId::uuid),
        filter.person.map(UserId::uuid),
        filter.sku.as_deref(),
        filter.allocation.map(AllocationId::uuid),
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| {
            let shown = UsageRow {
                period_start: r.at,
                project_id: r.project_id.map(ProjectId::from),
                person_id: r.person_id.map(UserId::from),
                sku: r.sku,
                app_instance_id: r.app_instance_id,
                allocation_id: r.allocation_id.map(AllocationId::from),
                unit: r.unit,
                seconds: r.seconds,
                unit_seconds: r.unit_seconds,
                unit_hours: r.unit_seconds as f64 / 3600.0,
                cost_minor: r.amount,
                currency: r.currency,
            };
            (r.key, shown)
        })
        .collect())
}

struct Record {
    meter_id: Uuid,
    kind: UsageKind,
    window_start: DateTime<Utc>,
    window_end: DateTime<Utc>,
    source: MeterSource,
    project_id: Uuid,
    allocation_id: Option<Uuid>,
    app_instance_id: Option<Uuid>,
    component: Option<String>,
    operating_mode: Option<String>,
    control_plane_scope: Option<String>,
    runtime_backend: Option<String>,
    person_id: Option<Uuid>,
    sku: String,
    unit: MeterUnit,
    units: i32,
    unit_seconds: i64,
    unit_price_minor: i64,
    currency: String,
    amount_minor: i64,
    seq: Option<i64>,
    posted_at: DateTime<Utc>,
}

impl From<Record> for UsageRecord {
    fn from(row: Record) -> Self {
        Self {
            meter_id: MeterId::from(row.meter_id),
            kind: row.kind,
            window_start: row.window_start,
            window_end: row.window_end,
            source: row.source,
            project_id: ProjectId::from(row.project_id),
            allocation_id: row.allocation_id.map(AllocationId::from),
            app_instance_id: row.app_instance_id,
            component: row.component,
            operating_mode: row.operating_mode,
            control_plane_scope: row.control_plane_scope,
            runtime_backend: row.runtime_backend,
            person_id: row.person_id.map(UserId::from),
            sku: row.sku,
            unit: row.unit,
            units: row.units,
            unit_seconds: row.unit_seconds,
            unit_price_minor: row.unit_price_minor,
            currency: row.currency,
            amount_minor: row.amount_minor,
            seq: row.seq,
            posted_at: row.posted_at,
        }
    }
}

/// One by one, in the order in which they were posted.
pub async fn records(
    conn: &mut Connection,
    org: OrgId,
    filter: &Filter,
    used: Span,
    posted: Span,
    after: &After,
    limit: i64,
) -> Result<Vec<UsageRecord>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Record,
        r#"SELECT r.meter_id, r.kind AS "kind: UsageKind", r.window_start, r.window_end,
             m.source AS "source: MeterSource", m.project_id, m.allocation_id, m.app_instance_id,
             m.component, m.operating_mode, m.control_plane_scope, m.runtime_backend, m.person_id, m.sku,
             m.unit AS "unit: MeterUnit", m.units, CASE r.kind WHEN 'usage' THEN m.units ELSE -m.units END
                 * extract(epoch FROM r.window_end - r.window_start)::bigint AS "unit_seconds!",
             m.unit_price_minor, m.currency, r.amount_minor, r.seq, r.posted_at
           FROM usage_records r JOIN meters m ON m.id = r.meter_id
           WHERE r.org_id = $1 AND m.org_id = $1 AND r.window_start >= $2 AND r.window_start < $3
               AND r.posted_at >= greatest($4::timestamptz, $10::timestamptz) AND r.posted_at < $5
               AND ($6::uuid IS NULL OR m.project_id = $6) AND ($7::uuid IS NULL OR m.person_id = $7)
               AND ($8::text IS NULL OR m.sku = $8) AND ($9::uuid IS NULL OR m.allocation_id = $9)
               AND (r.posted_at, r.meter_id, r.window_start, r.kind) > ($10, $11, $12, $13)
           ORDER BY r.posted_at, r.meter_id, r.window_start, r.kind LIMIT $14"#,
        org.uuid(),
        used.from,
        used.to,
        posted.from,
        posted.to,
        filter.project.map(ProjectId::uuid),
        filter.person.map(UserId::uuid),
        filter.sku.as_deref(),
        filter.allocation.map(AllocationId::uuid),
        after.posted_at,
        after.meter,
        after.window_start,
        after.kind,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(UsageRecord::from).collect())
}

/// Credits and corrections that belong to no meter, as the platform's accounts hold them.
pub async fn grants(
    conn: &mut Connection,
    org: OrgId,
    posted: Span,
    after: (i64, i32),
    limit: i64,
) -> Result<Vec<Grant>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT p.seq, l.line, p.kind AS "kind: PostingKind", p.reason, p.posted_at, l.amount_minor, p.currency, l.project_id, l.allocation_id
           FROM ledger_postings p JOIN ledger_lines l ON l.org_id = p.org_id AND l.seq = p.seq AND l.posted_at = p.posted_at
           WHERE p.org_id = $1 AND p.posted_at >= $2 AND p.posted_at < $3 AND p.kind <> 'usage' AND l.meter_id IS NULL
               AND l.account IN ('revenue', 'credits_granted') AND (p.seq, l.line) > ($4, $5)
           ORDER BY p.seq, l.line LIMIT $6"#,
        org.uuid(),
        posted.from,
        posted.to,
        after.0,
        after.1,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Grant {
            seq: row.seq,
            line: row.line,
            kind: row.kind,
            reason: row.reason,
            posted_at: row.posted_at,
            amount_minor: row.amount_minor,
            currency: row.currency,
            project: row.project_id.map(ProjectId::from),
            allocation: row.allocation_id.map(AllocationId::from),
        })
        .collect())
}
