//! Changes that need a second person.

use chrono::{DateTime, Utc};
use kernel::{
    PageQuery,
    ids::{OrgId, SensitiveChangeId, UserId},
};
use lifecycle::Named as _;
use pg::Connection;
use serde_json::Value;
use uuid::Uuid;

use crate::model::sensitive_change::{SensitiveChange, SensitiveChangeKind, SensitiveChangeState};

struct Row {
    id: Uuid,
    kind: SensitiveChangeKind,
    policy_key: Option<String>,
    org_id: Option<Uuid>,
    user_id: Option<Uuid>,
    value: Option<Value>,
    reason: String,
    state: SensitiveChangeState,
    proposed_by: Uuid,
    decided_by: Option<Uuid>,
    alone: bool,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for SensitiveChange {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            kind: row.kind,
            policy_key: row.policy_key,
            org_id: row.org_id.map(OrgId::from),
            user_id: row.user_id.map(UserId::from),
            value: row.value,
            reason: row.reason,
            state: row.state,
            proposed_by: row.proposed_by.into(),
            decided_by: row.decided_by.map(UserId::from),
            alone: row.alone,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

pub async fn insert(conn: &mut Connection, new: &SensitiveChange) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO sensitive_changes (id, kind, policy_key, org_id, user_id, value, reason, state, proposed_by, decided_by,
             alone, version, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        new.id.uuid(),
        new.kind.name(),
        new.policy_key,
        new.org_id.map(OrgId::uuid),
        new.user_id.map(UserId::uuid),
        new.value,
        new.reason,
        new.state.name(),
        new.proposed_by.uuid(),
        new.decided_by.map(UserId::uuid),
        new.alone,
        new.version,
        new.created_at,
        new.updated_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn get(
    conn: &mut Connection,
    id: SensitiveChangeId,
) -> Result<Option<SensitiveChange>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, kind AS "kind: SensitiveChangeKind", policy_key, org_id, user_id, value, reason,
               state AS "state: SensitiveChangeState", proposed_by, decided_by, alone, version,
             created_at, updated_at
         FROM sensitive_changes WHERE id = $1"#,
        id.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(SensitiveChange::from))
}

/// Two who decide at once do so one after the other.
pub async fn get_for_update(
    conn: &mut Connection,
    id: SensitiveChangeId,
) -> Result<Option<SensitiveChange>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, kind AS "kind: SensitiveChangeKind", policy_key, org_id, user_id, value, reason,
               state AS "state: SensitiveChangeState", proposed_by, decided_by, alone, version,
             created_at, updated_at
         FROM sensitive_changes WHERE id = $1 FOR UPDATE"#,
        id.uuid()
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(SensitiveChange::from))
}

/// Newest first.
pub async fn list(
    conn: &mut Connection,
    state: Option<SensitiveChangeState>,
    page: &PageQuery,
) -> Result<Vec<SensitiveChange>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, kind AS "kind: SensitiveChangeKind", policy_key, org_id, user_id, value, reason,
               state AS "state: SensitiveChangeState", proposed_by, decided_by, alone, version,
             created_at, updated_at
         FROM sensitive_changes WHERE id < $1 AND ($3::text IS NULL OR state = $3) ORDER BY id DESC LIMIT $2"#,
        page.before(),
        page.limit(),
        state.map(SensitiveChangeState::name),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(SensitiveChange::from).collect())
}

pub async fn decide(conn: &mut Connection, decided: &SensitiveChange) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE sensitive_changes SET state = $2, decided_by = $3, version = $4, updated_at = $5 WHERE id = $1",
        decided.id.uuid(),
        decided.state.name(),
        decided.decided_by.map(UserId::uuid),
        decided.version,
        decided.updated_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Whether the right to approve was ever given or taken since the installation had its first administrator.
pub async fn approvers_changed(conn: &mut Connection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM sensitive_changes WHERE kind = 'platform_roles_set' AND state = 'applied') AS "ever!""#
    )
    .fetch_one(conn)
    .await
}
