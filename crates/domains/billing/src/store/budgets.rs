//! What projects with a budget have spent. Whoever writes here holds the chains of these organizations.

use chrono::{DateTime, NaiveDate, Utc};
use kernel::ids::{OrgId, ProjectId};
use pg::{Connection, WriteTx};
use uuid::Uuid;

use crate::model::{budget::Spending, budget_resource::BudgetAction};

/// A budget with the spending of the month added up to the end of the ledger.
pub struct Watched {
    pub org: OrgId,
    pub project: ProjectId,
    pub action: BudgetAction,
    pub currency: String,
    pub spending: Spending,
    /// The end of the ledger, and how far it was added up before.
    pub seq: i64,
    pub through_seq: i64,
}

/// The budgets of these organizations, or of some of their projects. Spending is what a project took out of the accounts of
/// its organization: holds and their release cancel out, credits count back. Only what was posted since the last time is
/// read, and what meters used since they were posted.
pub async fn watched(
    conn: &mut Connection,
    orgs: &[Uuid],
    projects: Option<&[Uuid]>,
    (month, next): (NaiveDate, NaiveDate),
    now: DateTime<Utc>,
) -> Result<Vec<Watched>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT b.org_id AS "org_id!", b.project_id AS "project_id!", b.action AS "action!: BudgetAction",
             b.amount_minor AS "amount_minor!",
             b.threshold_percent AS "threshold_percent!", b.updated_at AS "updated_at!", c.currency AS "currency!", c.seq AS "seq!",
             f.through AS "through!", CASE WHEN g.month = $2 THEN g.crossed_at END AS "crossed_at?",
             (CASE WHEN g.month = $2 THEN g.spent_minor ELSE 0 END - coalesce((
                 SELECT sum(l.amount_minor) FROM ledger_lines l
                 WHERE l.org_id = b.org_id AND l.seq > f.through AND l.project_id = b.project_id
                   AND l.account IN ('prepaid', 'held', 'promo')
                   AND l.posted_at >= $2::date::timestamp AT TIME ZONE 'UTC' AND l.posted_at < $3::date::timestamp AT TIME ZONE 'UTC'
             ), 0))::bigint AS "spent!", u.unposted AS "unposted!"
           FROM budgets b
           JOIN ledger_chains c ON c.org_id = b.org_id
           LEFT JOIN budget_progress g ON g.project_id = b.project_id
           CROSS JOIN LATERAL (SELECT CASE WHEN g.month = $2 THEN g.through_seq ELSE 0 END AS through) AS f
           CROSS JOIN LATERAL (
               SELECT least(coalesce(sum(used.amount), 0), $6::bigint)::bigint AS unposted
               FROM meters m, usage_cost(m.carry, m.unit_price_minor, m.units, least(
                     greatest(floor(extract(epoch FROM least($5, m.closed_at) - m.accrued_until)), 0)::bigint,
                     ($6::bigint - 3599) / greatest(m.unit_price_minor, 1) / greatest(m.units, 1))) AS used
               WHERE m.org_id = b.org_id AND m.project_id = b.project_id AND m.state IN ('open', 'closed')
           ) AS u
           WHERE b.org_id = ANY ($1) AND ($4::uuid[] IS NULL OR b.project_id = ANY ($4))"#,
        orgs,
        month,
        next,
        projects,
        now,
        i64::MAX,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Watched {
            org: OrgId::from(row.org_id),
            project: ProjectId::from(row.project_id),
            action: row.action,
            currency: row.currency,
            spending: Spending {
                amount_minor: row.amount_minor,
                threshold_percent: row.threshold_percent,
                spent_minor: row.spent,
                unposted_minor: row.unposted,
                crossed_at: row.crossed_at,
                updated_at: row.updated_at,
            },
            seq: row.seq,
            through_seq: row.through,
        })
        .collect())
}

/// How far a budget was added up now.
pub struct Progress {
    pub org: OrgId,
    pub project: ProjectId,
    pub spent_minor: i64,
    pub unposted_minor: i64,
    pub through_seq: i64,
    pub crossed_at: Option<DateTime<Utc>>,
}

pub async fn progress(tx: &mut WriteTx, month: NaiveDate, progress: &[Progress]) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO budget_progress (project_id, org_id, month, spent_minor, through_seq, crossed_at, unposted_minor)
         SELECT p.project_id, p.org_id, $6, p.spent, p.through, p.crossed_at, p.unposted
         FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::timestamptz[], $7::bigint[])
             AS p (project_id, org_id, spent, through, crossed_at, unposted)
         -- One that was removed in the meantime is not watched any more.
         JOIN budgets b ON b.project_id = p.project_id
         ON CONFLICT (project_id) DO UPDATE SET month = excluded.month, spent_minor = excluded.spent_minor,
             through_seq = excluded.through_seq, crossed_at = excluded.crossed_at, unposted_minor = excluded.unposted_minor",
        &progress.iter().map(|p| p.project.uuid()).collect::<Vec<_>>(),
        &progress.iter().map(|p| p.org.uuid()).collect::<Vec<_>>(),
        &progress.iter().map(|p| p.spent_minor).collect::<Vec<_>>(),
        &progress.iter().map(|p| p.through_seq).collect::<Vec<_>>(),
        &progress.iter().map(|p| p.crossed_at).collect::<Vec<_>>() as &[Option<DateTime<Utc>>],
        month,
        &progress.iter().map(|p| p.unposted_minor).collect::<Vec<_>>(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Organizations with a budget that was never added up in this month, or that was changed since `since`.
pub async fn fresh(
    conn: &mut Connection,
    month: NaiveDate,
    since: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT DISTINCT b.org_id AS "org_id!" FROM budgets b JOIN ledger_chains c ON c.org_id = b.org_id
         LEFT JOIN budget_progress g ON g.project_id = b.project_id AND g.month = $1
         WHERE g.project_id IS NULL OR b.updated_at > $2 ORDER BY 1 LIMIT $3"#,
        month,
        since,
        limit,
    )
    .fetch_all(conn)
    .await
}
