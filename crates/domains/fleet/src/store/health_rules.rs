//! What is done about health findings.

use chrono::{DateTime, Utc};
use kernel::Failure;
use pg::{Connection, Swap};

use crate::model::health_rule::{HealthAction, HealthRule};

struct Row {
    pattern: String,
    action: HealthAction,
    meaning: String,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for HealthRule {
    fn from(row: Row) -> Self {
        Self {
            action: row.action,
            pattern: row.pattern,
            meaning: row.meaning,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// Changes of the table come one after the other: what one of them means for money depends on all rules.
pub async fn lock_changes(conn: &mut Connection) -> Result<(), sqlx::Error> {
    sqlx::query!(r#"SELECT pg_advisory_xact_lock(hashtext('health_rules')) AS "locked: ()""#)
        .fetch_one(conn)
        .await?;
    Ok(())
}

/// All of them, for a decision.
pub async fn all(conn: &mut Connection) -> Result<Vec<(String, HealthAction)>, sqlx::Error> {
    let rows = sqlx::query!(r#"SELECT pattern, action AS "action: HealthAction" FROM health_rules"#)
        .fetch_all(conn)
        .await?;
    Ok(rows.into_iter().map(|row| (row.pattern, row.action)).collect())
}

pub async fn get(conn: &mut Connection, pattern: &str) -> Result<Option<HealthRule>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT pattern, action AS "action: HealthAction", meaning, version, created_at,
               updated_at FROM health_rules WHERE pattern = $1"#,
        pattern,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(HealthRule::from))
}

pub async fn count(conn: &mut Connection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM health_rules"#).fetch_one(conn).await
}

pub async fn list(
    conn: &mut Connection,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<HealthRule>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT pattern, action AS "action: HealthAction", meaning, version, created_at, updated_at FROM health_rules
         WHERE $1::text IS NULL OR pattern > $1 ORDER BY pattern LIMIT $2"#,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(HealthRule::from).collect())
}

/// Inserts, or replaces what is there in the version that the caller believes in.
pub async fn put(
    conn: &mut Connection,
    (pattern, action, meaning): (&str, HealthAction, &str),
    if_match: Option<i64>,
    now: DateTime<Utc>,
) -> Result<Swap<HealthRule>, Failure> {
    let row = sqlx::query_as!(
        Row,
        r#"INSERT INTO health_rules AS r (pattern, action, meaning, created_at, updated_at)
         SELECT $1, $2, $3, $5, $5
         WHERE $4::bigint IS NULL OR EXISTS (SELECT FROM health_rules WHERE pattern = $1)
         ON CONFLICT (pattern) DO UPDATE SET action = excluded.action, meaning = excluded.meaning,
             version = r.version + 1, updated_at = excluded.updated_at
         WHERE r.version = coalesce($4, r.version)
         RETURNING pattern, action AS "action: HealthAction", meaning, version, created_at, updated_at"#,
        pattern,
        action.name(),
        meaning,
        if_match,
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    Ok(swap(conn, pattern, row).await?)
}

pub async fn delete(
    conn: &mut Connection,
    pattern: &str,
    if_match: Option<i64>,
) -> Result<Swap<HealthRule>, Failure> {
    let row = sqlx::query_as!(
        Row,
        r#"DELETE FROM health_rules WHERE pattern = $1 AND version = coalesce($2, version)
         RETURNING pattern, action AS "action: HealthAction", meaning, version, created_at, updated_at"#,
        pattern,
        if_match,
    )
    .fetch_optional(&mut *conn)
    .await?;
    Ok(swap(conn, pattern, row).await?)
}

async fn swap(
    conn: &mut Connection,
    pattern: &str,
    row: Option<Row>,
) -> Result<Swap<HealthRule>, sqlx::Error> {
    let current = match row {
        Some(_) => None,
        None => get(conn, pattern).await?.map(|rule| rule.version),
    };
    Ok(Swap::from_update(row.map(HealthRule::from), current))
}
