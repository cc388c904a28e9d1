//! Nodes. A state changes only by a step of the lifecycle, with compare-and-swap on the version.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, PageQuery, Problem,
    ids::{NodeId, PoolId},
};
use lifecycle::Named as _;
use pg::{Connection, Swap};
use serde_json::Value;
use uuid::Uuid;

use crate::model::{
    contact::Contact,
    node::{Node, NodeState, NodeSummary, Serves},
    text::{Labels, Reach},
};

pub(super) struct Row {
    pub id: Uuid,
    pub hostname: String,
    pub region: String,
    pub pool_id: Option<Uuid>,
    pub labels: Value,
    pub sku_eligibility: Vec<String>,
    pub serves: Serves,
    pub simulated: bool,
    pub state: NodeState,
    pub state_reason: String,
    pub state_changed_at: DateTime<Utc>,
    pub cordon_reason: Option<String>,
    pub ssh_host: Option<String>,
    pub ssh_port: Option<i32>,
    pub desired_version: i64,
    pub enrolled_at: Option<DateTime<Utc>>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl From<Row> for Node {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            hostname: row.hostname,
            region: row.region,
            pool_id: row.pool_id.map(PoolId::from),
            labels: Labels::stored(row.labels),
            sku_eligibility: row.sku_eligibility,
            serves: row.serves,
            simulated: row.simulated,
            state: row.state,
            state_reason: row.state_reason,
            state_changed_at: row.state_changed_at,
            cordon_reason: row.cordon_reason,
            ssh_host: row.ssh_host,
            ssh_port: row.ssh_port.and_then(|port| u16::try_from(port).ok()),
            desired_version: row.desired_version,
            enrolled_at: row.enrolled_at,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

pub struct NewNode<'a> {
    pub id: NodeId,
    pub hostname: &'a str,
    pub region: &'a str,
    pub pool: Option<PoolId>,
    pub labels: &'a Labels,
    pub sku_eligibility: &'a [String],
    pub serves: Serves,
    pub simulated: bool,
    pub ssh: &'a Reach,
    pub now: DateTime<Utc>,
}

pub async fn insert(conn: &mut Connection, new: &NewNode<'_>) -> Result<Node, Failure> {
    sqlx::query_as!(
        Row,
        r#"INSERT INTO nodes (id, hostname, region, pool_id, labels, sku_eligibility, simulated, ssh_host, ssh_port, serves,
               state_changed_at, created_at, updated_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $9, $10, $11, $8, $8, $8)
           RETURNING id, hostname, region, pool_id, labels, sku_eligibility, serves AS "serves: Serves", simulated,
               state AS "state: NodeState", state_reason,
               state_changed_at, cordon_reason, ssh_host, ssh_port, desired_version, enrolled_at, version,
                   created_at, updated_at"#,
        new.id.uuid(),
        new.hostname,
        new.region,
        new.pool.map(PoolId::uuid),
        serde_json::to_value(new.labels)?,
        new.sku_eligibility,
        new.simulated,
        new.now,
        new.ssh.host() as Option<&str>,
        new.ssh.port() as Option<i32>,
        new.serves.name(),
    )
    .fetch_one(conn)
    .await
    .map(Node::from)
    .map_err(|error| {
        super::violated(
            error,
            &[
                ("nodes_hostname", || {
                    Problem::new(Code::AlreadyExists, "A node with this host name already exists.")
                        .detail("field", "hostname")
                }),
                ("nodes_region_fkey", || Problem::field("region", "there is no such region")),
                ("nodes_pool_id_fkey", || Problem::field("pool_id", "there is no such pool")),
            ],
        )
    })
}

pub async fn get(conn: &mut Connection, id: NodeId) -> Result<Option<Node>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, hostname, region, pool_id, labels, sku_eligibility, serves AS "serves: Serves", simulated,
                   state AS "state: NodeState", state_reason,
               state_changed_at, cordon_reason, ssh_host, ssh_port, desired_version, enrolled_at, version,
                   created_at, updated_at
           FROM nodes WHERE id = $1"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Node::from))
}

/// The node, held until the transaction ends. Whoever only refers to it (a task, a slot) is not held up.
pub async fn lock(conn: &mut Connection, id: NodeId) -> Result<Option<Node>, sqlx::Error> {
    let locked = sqlx::query_scalar!("SELECT id FROM nodes WHERE id = $1 FOR NO KEY UPDATE", id.uuid())
        .fetch_optional(&mut *conn)
        .await?;
    // A second statement sees what a transaction that held the lock before us has committed.
    if locked.is_some() { get(conn, id).await } else { Ok(None) }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    pub state: Option<NodeState>,
    pub region: Option<&'a str>,
    pub pool: Option<PoolId>,
    pub label: Option<(&'a str, &'a str)>,
    pub simulated: Option<bool>,
    pub hostname: Option<&'a str>,
}

/// Deleted nodes are listed only when they are asked for.
pub async fn list(
    conn: &mut Connection,
    filter: Filter<'_>,
    page: &PageQuery,
) -> Result<Vec<NodeSummary>, sqlx::Error> {
    let label = filter.label.map(|(key, value)| serde_json::json!({ key: value }));
    let rows = sqlx::query!(
        r#"SELECT n.id, n.hostname, n.region, n.pool_id, n.labels, n.sku_eligibility, n.serves AS "serves: Serves", n.simulated,
                      n.state AS "state: NodeState",
                  n.state_reason, n.state_changed_at, n.cordon_reason, n.ssh_host, n.ssh_port, n.desired_version,
                      n.enrolled_at, n.version,
                  n.created_at, n.updated_at,
                  c.last_seen_at AS "last_seen_at?", c.agent_version AS "agent_version?", c.certificate_expires_at,
                  (SELECT count(*) FROM health_findings f WHERE f.node_id = n.id AND f.state <> 'resolved')
                      AS "open_findings!",
                  (SELECT count(*) FROM node_resource_slots s WHERE s.node_id = n.id) AS "slots_total!",
                  (SELECT coalesce(sum(k.ready), 0) FROM node_capacity k WHERE k.node_id = n.id AND k.placeable)
                      AS "slots_available!"
           FROM nodes n LEFT JOIN node_contacts c ON c.node_id = n.id
           WHERE n.id > $1
             AND CASE WHEN $3::text IS NULL THEN n.state <> 'deleted' ELSE n.state = $3 END
             AND ($4::text IS NULL OR n.region = $4)
             AND ($5::uuid IS NULL OR n.pool_id = $5)
             AND ($6::jsonb IS NULL OR n.labels @> $6)
             AND ($7::boolean IS NULL OR n.simulated = $7)
             AND ($8::text IS NULL OR n.hostname = $8)
           ORDER BY n.id LIMIT $2"#,
        page.after(),
        page.limit(),
        filter.state.map(NodeState::name),
        filter.region,
        filter.pool.map(PoolId::uuid),
        label as Option<Value>,
        filter.simulated,
        filter.hostname,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| NodeSummary {
            last_seen_at: row.last_seen_at,
            agent_version: row.agent_version,
            certificate_expires_at: row.certificate_expires_at,
            open_findings: row.open_findings,
            slots_total: row.slots_total,
            slots_available: row.slots_available,
            node: Row {
                id: row.id,
                hostname: row.hostname,
                region: row.region,
                pool_id: row.pool_id,
                labels: row.labels,
                sku_eligibility: row.sku_eligibility,
                serves: row.serves,
                simulated: row.simulated,
                state: row.state,
                state_reason: row.state_reason,
                state_changed_at: row.state_changed_at,
                cordon_reason: row.cordon_reason,
                ssh_host: row.ssh_host,
                ssh_port: row.ssh_port,
                desired_version: row.desired_version,
                enrolled_at: row.enrolled_at,
                version: row.version,
                created_at: row.created_at,
                updated_at: row.updated_at,
            }
            .into(),
        })
        .collect())
}

/// What an operator may change about a node.
#[derive(Clone, Debug, Default)]
pub struct Change<'a> {
    pub labels: Option<&'a Labels>,
    pub sku_eligibility: Option<&'a [String]>,
    pub serves: Option<Serves>,
    /// Into this pool, or out of any.
    pub pool: Option<Option<PoolId>>,
    /// Cordoned for this reason, or no longer.
    pub cordon: Option<Option<&'a str>>,
    /// What is named of it.
    pub ssh: Reach,
}

pub async fn update(
    conn: &mut Connection,
    node: &Node,
    change: Change<'_>,
    now: DateTime<Utc>,
) -> Result<Swap<Node>, Failure> {
    let labels = change.labels.map(serde_json::to_value).transpose()?;
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE nodes SET labels = coalesce($3, labels), sku_eligibility = coalesce($4, sku_eligibility),
               pool_id = CASE WHEN $5 THEN $6 ELSE pool_id END,
               cordon_reason = CASE WHEN $7 THEN $8 ELSE cordon_reason END,
               ssh_host = coalesce($10, ssh_host), ssh_port = coalesce($11, ssh_port),
               serves = coalesce($12, serves), version = version + 1, updated_at = $9
           WHERE id = $1 AND version = $2
           RETURNING id, hostname, region, pool_id, labels, sku_eligibility, serves AS "serves: Serves", simulated,
               state AS "state: NodeState", state_reason,
               state_changed_at, cordon_reason, ssh_host, ssh_port, desired_version, enrolled_at, version,
                   created_at, updated_at"#,
        node.id.uuid(),
        node.version,
        labels as Option<Value>,
        change.sku_eligibility as Option<&[String]>,
        change.pool.is_some(),
        change.pool.flatten().map(PoolId::uuid) as Option<Uuid>,
        change.cordon.is_some(),
        change.cordon.flatten() as Option<&str>,
        now,
        change.ssh.host() as Option<&str>,
        change.ssh.port() as Option<i32>,
        change.serves.map(Serves::name) as Option<&str>,
    )
    .fetch_optional(&mut *conn)
    .await
    .map_err(|error| {
        super::violated(error, &[("nodes_pool_id_fkey", || Problem::field("pool_id", "there is no such pool"))])
    })?;
    swap(conn, node.id, row).await
}

/// Applies a step that the lifecycle allowed.
pub async fn transition(
    conn: &mut Connection,
    node: &Node,
    to: NodeState,
    reason: &str,
    now: DateTime<Utc>,
) -> Result<Swap<Node>, Failure> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE nodes SET state = $3, state_reason = $4, state_changed_at = $5,
               enrolled_at = CASE WHEN $3 = 'enrolling' THEN $5 ELSE enrolled_at END,
               version = version + 1, updated_at = $5
           WHERE id = $1 AND version = $2
           RETURNING id, hostname, region, pool_id, labels, sku_eligibility, serves AS "serves: Serves", simulated,
               state AS "state: NodeState", state_reason,
               state_changed_at, cordon_reason, ssh_host, ssh_port, desired_version, enrolled_at, version,
                   created_at, updated_at"#,
        node.id.uuid(),
        node.version,
        to.name(),
        reason,
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    swap(conn, node.id, row).await
}

async fn swap(conn: &mut Connection, id: NodeId, row: Option<Row>) -> Result<Swap<Node>, Failure> {
    let current = match row {
        Some(_) => None,
        None => {
            sqlx::query_scalar!("SELECT version FROM nodes WHERE id = $1", id.uuid())
                .fetch_optional(conn)
                .await?
        }
    };
    Ok(Swap::from_update(row.map(Node::from), current))
}

pub async fn contact(conn: &mut Connection, id: NodeId) -> Result<Option<Contact>, sqlx::Error> {
    let row = sqlx::query!(
        "SELECT first_seen_at, last_seen_at, agent_version, contract, certificate_expires_at, applied_version,
                keyset_serial, authority_ids, clock_offset_ms, boot_id, metrics, inventory
         FROM node_contacts WHERE node_id = $1",
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Contact {
        first_seen_at: row.first_seen_at,
        last_seen_at: row.last_seen_at,
        agent_version: row.agent_version,
        contract: row.contract,
        certificate_expires_at: row.certificate_expires_at,
        applied_version: row.applied_version,
        keyset_serial: row.keyset_serial,
        authority_ids: row.authority_ids.into_iter().map(Into::into).collect(),
        clock_offset_ms: row.clock_offset_ms,
        boot_id: row.boot_id,
        metrics: row.metrics,
        inventory: row.inventory,
    }))
}

/// Open findings and open tasks of a node.
pub async fn open_counts(conn: &mut Connection, id: NodeId) -> Result<(i64, i64), sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT (SELECT count(*) FROM health_findings WHERE node_id = $1 AND state <> 'resolved') AS "findings!",
                  (SELECT count(*) FROM node_tasks
                   WHERE node_id = $1 AND state IN ('queued', 'dispatched', 'running')) AS "tasks!""#,
        id.uuid(),
    )
    .fetch_one(conn)
    .await?;
    Ok((row.findings, row.tasks))
}

/// Nodes that are being removed and have nothing left to wait for.
pub async fn removable(conn: &mut Connection, limit: i64) -> Result<Vec<NodeId>, sqlx::Error> {
    let ids = sqlx::query_scalar!(
        "SELECT n.id FROM nodes n WHERE n.state = 'removing' AND NOT EXISTS
             (SELECT FROM node_tasks t WHERE t.node_id = n.id AND t.state IN ('queued', 'dispatched', 'running'))
         ORDER BY n.id LIMIT $1",
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().map(NodeId::from).collect())
}

/// Forgets what a node said of itself. What was done to it, and by whom, stays.
pub async fn forget(conn: &mut Connection, id: NodeId) -> Result<(), sqlx::Error> {
    sqlx::query!("DELETE FROM node_contacts WHERE node_id = $1", id.uuid()).execute(&mut *conn).await?;
    sqlx::query!("DELETE FROM node_topologies WHERE node_id = $1", id.uuid()).execute(&mut *conn).await?;
    sqlx::query!("DELETE FROM node_tokens WHERE node_id = $1", id.uuid()).execute(conn).await?;
    Ok(())
}
