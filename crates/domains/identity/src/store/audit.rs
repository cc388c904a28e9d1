//! Reading the audit trail. Nothing here can write it.

use chrono::{DateTime, Utc};
use kernel::{
    audit_chain::{AuditRecord, ChainHead, Hex, PrincipalId},
    ids::OrgId,
    principal::PrincipalKind,
};
use pg::Connection;
use uuid::Uuid;

struct Row {
    id: Uuid,
    org_id: Uuid,
    seq: i64,
    at: DateTime<Utc>,
    actor_kind: String,
    actor_id: Option<Uuid>,
    actor_role: String,
    on_behalf_of: Option<Uuid>,
    action: String,
    target_kind: String,
    target_id: Option<String>,
    project_id: Option<Uuid>,
    result: String,
    code: Option<String>,
    correlation_id: Uuid,
    source_ip: Option<String>,
    before_digest: Option<Vec<u8>>,
    after_digest: Option<Vec<u8>>,
    repeats: Option<i64>,
    prev_hash: Vec<u8>,
    hash: Vec<u8>,
}

impl From<Row> for AuditRecord {
    fn from(row: Row) -> Self {
        let principal = |id: Uuid| match row.actor_kind.parse() {
            Ok(PrincipalKind::ServiceAccount) => PrincipalId::ServiceAccount(id.into()),
            Ok(PrincipalKind::User) | Err(_) => PrincipalId::User(id.into()),
        };
        Self {
            id: row.id.into(),
            org_id: (!row.org_id.is_nil()).then(|| row.org_id.into()),
            seq: row.seq,
            at: row.at,
            actor_id: row.actor_id.map(principal),
            actor_kind: row.actor_kind,
            actor_role: row.actor_role,
            on_behalf_of: row.on_behalf_of.map(Into::into),
            action: row.action,
            target_kind: row.target_kind,
            target_id: row.target_id,
            project_id: row.project_id.map(Into::into),
            result: row.result,
            code: row.code,
            correlation_id: row.correlation_id,
            source_ip: row.source_ip,
            before_digest: row.before_digest.map(Hex),
            after_digest: row.after_digest.map(Hex),
            repeats: row.repeats,
            prev_hash: Hex(row.prev_hash),
            hash: Hex(row.hash),
        }
    }
}

/// The platform's own chain has the nil UUID.
fn chain(org: Option<OrgId>) -> Uuid {
    org.map_or(Uuid::nil(), OrgId::uuid)
}

#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub actor_id: Option<Uuid>,
    pub action: Option<String>,
    pub result: Option<String>,
    pub target_id: Option<String>,
    pub since: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
}

/// Newest first, from before `before`.
pub async fn list(
    conn: &mut Connection,
    org: Option<OrgId>,
    filter: &Filter,
    before: i64,
    limit: i64,
) -> Result<Vec<AuditRecord>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, org_id, seq, at, actor_kind, actor_id, actor_role, on_behalf_of, action, target_kind, target_id,
             project_id, result, code, correlation_id, source_ip, before_digest, after_digest, repeats, prev_hash, hash
         FROM audit_logs WHERE org_id = $1 AND seq < $2
             AND ($4::uuid IS NULL OR actor_id = $4) AND ($5::text IS NULL OR action = $5)
             AND ($6::text IS NULL OR result = $6) AND ($7::text IS NULL OR target_id = $7)
             AND ($8::timestamptz IS NULL OR at >= $8) AND ($9::timestamptz IS NULL OR at < $9)
         ORDER BY seq DESC LIMIT $3",
        chain(org),
        before,
        limit,
        filter.actor_id,
        filter.action,
        filter.result,
        filter.target_id,
        filter.since,
        filter.until,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(AuditRecord::from).collect())
}

/// The next rows of a chain in order, after `after` and up to `last`.
pub async fn batch(
    conn: &mut Connection,
    org: Option<OrgId>,
    after: i64,
    last: i64,
    limit: i64,
) -> Result<Vec<AuditRecord>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, org_id, seq, at, actor_kind, actor_id, actor_role, on_behalf_of, action, target_kind, target_id,
             project_id, result, code, correlation_id, source_ip, before_digest, after_digest, repeats, prev_hash, hash
         FROM audit_logs WHERE org_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4",
        chain(org),
        after,
        last,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(AuditRecord::from).collect())
}

/// The head of a chain, and the number of its last row as the rows themselves say, at one moment.
pub async fn head(conn: &mut Connection, org: Option<OrgId>) -> Result<(ChainHead, i64), sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT (SELECT seq FROM audit_chains WHERE org_id = $1) AS seq,
               (SELECT hash FROM audit_chains WHERE org_id = $1) AS hash,
               coalesce((SELECT max(seq) FROM audit_logs WHERE org_id = $1), 0) AS "last!""#,
        chain(org),
    )
    .fetch_one(conn)
    .await?;
    let head = match (row.seq, row.hash) {
        (Some(seq), Some(hash)) => ChainHead { org_id: org, seq, hash: Hex(hash) },
        _ => ChainHead::empty(org),
    };
    Ok((head, row.last))
}

/// The chains that are or should be there, by their UUID: every organization's, and the platform's own.
pub async fn chains(conn: &mut Connection, after: Uuid, limit: i64) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT id AS "id!" FROM (SELECT org_id AS id FROM audit_chains UNION SELECT id FROM organizations) AS c
           WHERE id > $1 ORDER BY id LIMIT $2"#,
        after,
        limit,
    )
    .fetch_all(conn)
    .await
}
