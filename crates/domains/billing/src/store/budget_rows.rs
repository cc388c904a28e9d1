//! Budgets as they are set.

use chrono::{DateTime, NaiveDate, Utc};
use kernel::{
    Failure, PageQuery, Problem,
    ids::{OrgId, ProjectId},
};
use pg::{Connection, Swap};
use uuid::Uuid;

use crate::model::budget_resource::{Budget, BudgetAction, BudgetWanted};

struct Row {
    project_id: Uuid,
    org_id: Uuid,
    amount_minor: i64,
    threshold_percent: i32,
    action: BudgetAction,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    currency: Option<String>,
    crossed_at: Option<DateTime<Utc>>,
}

impl Row {
    fn shown(self, currency: &str) -> Budget {
        Budget {
            project_id: ProjectId::from(self.project_id),
            org_id: OrgId::from(self.org_id),
            amount_minor: self.amount_minor,
            currency: self.currency.unwrap_or_else(|| currency.to_owned()),
            threshold_percent: self.threshold_percent,
            action: self.action,
            spent_minor: 0,
            unposted_minor: 0,
            spent_percent: 0,
            crossed_at: self.crossed_at,
            version: self.version,
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }
}

/// The budget of a project, without what was spent, which [`super::budgets::watched`] adds up; `currency` is that of organizations without a ledger.
pub async fn get(
    conn: &mut Connection,
    org: OrgId,
    project: ProjectId,
    month: NaiveDate,
    currency: &str,
) -> Result<Option<Budget>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT b.project_id AS "project_id!", b.org_id AS "org_id!", b.amount_minor AS "amount_minor!",
             b.threshold_percent AS "threshold_percent!", b.action AS "action!: BudgetAction", b.version AS "version!",
             b.created_at AS "created_at!", b.updated_at AS "updated_at!",
             c.currency AS "currency?", g.crossed_at AS "crossed_at?"
           FROM budgets b LEFT JOIN ledger_chains c ON c.org_id = b.org_id
           LEFT JOIN budget_progress g ON g.project_id = b.project_id AND g.month = $3
           WHERE b.org_id = $1 AND b.project_id = $2"#,
        org.uuid(),
        project.uuid(),
        month,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| row.shown(currency)))
}

pub async fn list(
    conn: &mut Connection,
    org: OrgId,
    page: &PageQuery,
    month: NaiveDate,
    currency: &str,
) -> Result<Vec<Budget>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT b.project_id AS "project_id!", b.org_id AS "org_id!", b.amount_minor AS "amount_minor!",
             b.threshold_percent AS "threshold_percent!", b.action AS "action!: BudgetAction", b.version AS "version!",
             b.created_at AS "created_at!", b.updated_at AS "updated_at!",
             c.currency AS "currency?", g.crossed_at AS "crossed_at?"
           FROM budgets b LEFT JOIN ledger_chains c ON c.org_id = b.org_id
           LEFT JOIN budget_progress g ON g.project_id = b.project_id AND g.month = $4
           WHERE b.org_id = $1 AND b.project_id > $2 ORDER BY b.project_id LIMIT $3"#,
        org.uuid(),
        page.after(),
        page.limit(),
        month,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.shown(currency)).collect())
}

/// Makes or changes a budget; with `version`, only when that is the current one.
pub async fn set(
    conn: &mut Connection,
    org: OrgId,
    project: ProjectId,
    wanted: &BudgetWanted,
    version: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<()>, Failure> {
    let done = if let Some(version) = version {
        sqlx::query!(
            "UPDATE budgets SET amount_minor = $3, threshold_percent = $4, action = $5, version = version + 1, updated_at = $6
             WHERE org_id = $1 AND project_id = $2 AND version = $7",
            org.uuid(),
            project.uuid(),
            wanted.amount_minor,
            wanted.threshold_percent,
            wanted.action.name(),
            now,
            version,
        )
        .execute(&mut *conn)
        .await?
    } else {
        sqlx::query!(
            "INSERT INTO budgets AS b (org_id, project_id, amount_minor, threshold_percent, action, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $6)
             ON CONFLICT (project_id) DO UPDATE SET amount_minor = excluded.amount_minor,
                 threshold_percent = excluded.threshold_percent, action = excluded.action, version = b.version + 1,
                 updated_at = excluded.updated_at",
            org.uuid(),
            project.uuid(),
            wanted.amount_minor,
            wanted.threshold_percent,
            wanted.action.name(),
            now,
        )
        .execute(&mut *conn)
        .await
        .map_err(|error| match pg::constraint_violated(&error) {
            // Deleted after the request was let in.
            Some("budgets_project") => Problem::not_found("project").into(),
            _ => Failure::from(error),
        })?
    };
    let updated = (done.rows_affected() == 1).then_some(());
    let current = if updated.is_some() { None } else { current(conn, org, project).await? };
    Ok(Swap::from_update(updated, current))
}

/// Removes a budget; with `version`, only when that is the current one.
pub async fn remove(
    conn: &mut Connection,
    org: OrgId,
    project: ProjectId,
    version: Option<i64>,
) -> Result<Swap<()>, sqlx::Error> {
    let done = sqlx::query!(
        "DELETE FROM budgets WHERE org_id = $1 AND project_id = $2 AND ($3::bigint IS NULL OR version = $3)",
        org.uuid(),
        project.uuid(),
        version,
    )
    .execute(&mut *conn)
    .await?;
    let removed = (done.rows_affected() == 1).then_some(());
    let current = if removed.is_some() { None } else { current(conn, org, project).await? };
    Ok(Swap::from_update(removed, current))
}

async fn current(conn: &mut Connection, org: OrgId, project: ProjectId) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT version FROM budgets WHERE org_id = $1 AND project_id = $2",
        org.uuid(),
        project.uuid()
    )
    .fetch_optional(conn)
    .await
}

/// Whether a project has a budget that ends its spending: one that releases what runs. Refused launches alone end nothing.
pub async fn is_limited(conn: &mut Connection, org: OrgId, project: ProjectId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM budgets WHERE org_id = $1 AND project_id = $2 AND action = 'release')
               AS "limited!""#,
        org.uuid(),
        project.uuid(),
    )
    .fetch_one(conn)
    .await
}
