//! What nodes report of themselves, and how far they should be.

use chrono::{DateTime, Utc};
use kernel::ids::{AuthorityId, NodeId};
use pg::Connection;
use serde_json::Value;
use uuid::Uuid;

/// The last report of one node.
#[derive(Clone, Debug)]
pub struct Contact {
    pub node: NodeId,
    pub seen_at: DateTime<Utc>,
    pub agent_version: String,
    pub contract: String,
    pub certificate_expires_at: DateTime<Utc>,
    pub applied_version: i64,
    pub keyset_serial: i64,
    pub authority_ids: Vec<AuthorityId>,
    pub clock_offset_ms: i64,
    pub boot_id: String,
    pub metrics: Value,
    pub inventory: Value,
}

/// Writes all contacts in one statement. A later report, written by another gateway, is not overwritten.
pub async fn upsert(conn: &mut Connection, contacts: &[Contact]) -> Result<u64, sqlx::Error> {
    let column = |of: fn(&Contact) -> i64| contacts.iter().map(of).collect::<Vec<i64>>();
    let authorities = |contact: &Contact| {
        let ids: Vec<String> = contact.authority_ids.iter().map(|id| id.uuid().to_string()).collect();
        format!("{{{}}}", ids.join(","))
    };
    let done = sqlx::query!(
        r#"INSERT INTO node_contacts (node_id, first_seen_at, last_seen_at, agent_version, contract,
               certificate_expires_at, applied_version, keyset_serial, authority_ids, clock_offset_ms, boot_id,
               metrics, inventory)
           SELECT c.node_id, c.seen_at, c.seen_at, c.agent_version, c.contract, c.expires, c.applied, c.serial,
               c.authorities::uuid[], c.clock, c.boot_id, c.metrics, c.inventory
           FROM UNNEST($1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::timestamptz[], $6::int8[],
               $7::int8[], $8::text[], $9::int8[], $10::text[], $11::jsonb[], $12::jsonb[])
               AS c (node_id, seen_at, agent_version, contract, expires, applied, serial, authorities, clock,
                     boot_id, metrics, inventory)
           JOIN nodes n ON n.id = c.node_id
           ORDER BY c.node_id
           ON CONFLICT (node_id) DO UPDATE SET
               last_seen_at = excluded.last_seen_at, agent_version = excluded.agent_version,
               contract = excluded.contract, certificate_expires_at = excluded.certificate_expires_at,
               applied_version = excluded.applied_version, keyset_serial = excluded.keyset_serial,
               authority_ids = excluded.authority_ids, clock_offset_ms = excluded.clock_offset_ms,
               boot_id = excluded.boot_id, metrics = excluded.metrics, inventory = excluded.inventory
           WHERE node_contacts.last_seen_at < excluded.last_seen_at"#,
        &contacts.iter().map(|c| c.node.uuid()).collect::<Vec<Uuid>>(),
        &contacts.iter().map(|c| c.seen_at).collect::<Vec<_>>(),
        &contacts.iter().map(|c| c.agent_version.clone()).collect::<Vec<_>>(),
        &contacts.iter().map(|c| c.contract.clone()).collect::<Vec<_>>(),
        &contacts.iter().map(|c| c.certificate_expires_at).collect::<Vec<_>>(),
        &column(|c| c.applied_version),
        &column(|c| c.keyset_serial),
        &contacts.iter().map(authorities).collect::<Vec<_>>(),
        &column(|c| c.clock_offset_ms),
        &contacts.iter().map(|c| c.boot_id.clone()).collect::<Vec<_>>(),
        &contacts.iter().map(|c| c.metrics.clone()).collect::<Vec<_>>(),
        &contacts.iter().map(|c| c.inventory.clone()).collect::<Vec<_>>(),
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// When the node reported last.
pub async fn last_seen(conn: &mut Connection, node: NodeId) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar!("SELECT last_seen_at FROM node_contacts WHERE node_id = $1", node.uuid())
        .fetch_optional(conn)
        .await
}

/// What the node should have applied.
pub async fn desired_version(conn: &mut Connection, node: NodeId) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar!("SELECT desired_version FROM nodes WHERE id = $1", node.uuid())
        .fetch_optional(conn)
        .await
}

/// Active nodes of which nobody has heard since `before`, in one look.
pub async fn silent(
    conn: &mut Connection,
    before: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<NodeId>, sqlx::Error> {
    let ids = sqlx::query_scalar!(
        "SELECT n.id FROM nodes n LEFT JOIN node_contacts c ON c.node_id = n.id
         WHERE n.state = 'active' AND coalesce(c.last_seen_at, n.state_changed_at) < $1 ORDER BY n.id LIMIT $2",
        before,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(NodeId::from).collect())
}
