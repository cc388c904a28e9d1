//! Slots. A state changes only by a step of the lifecycle.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, PageQuery,
    ids::{NodeId, SlotId},
};
use lifecycle::Named as _;
use node_proto::catalog::{Blocker, CandidateSlot};
use pg::{Connection, Swap};
use serde_json::Value;
use uuid::Uuid;

use crate::model::{
    node::ReadinessBlocker,
    slot::{FabricMode, Slot, SlotCount, SlotHealth, SlotKind, SlotState, stored_blockers},
};

struct Row {
    id: Uuid,
    node_id: Uuid,
    slot_index: i32,
    kind: SlotKind,
    state: SlotState,
    pci_address: Option<String>,
    model: String,
    iommu_group: Option<i32>,
    nvme_device: Option<String>,
    numa_node: Option<i32>,
    fabric_mode: FabricMode,
    fabric_vf: Option<String>,
    fabric_numa: Option<i32>,
    cleanup_reason: Option<String>,
    mac_address: Option<String>,
    private_ip: Option<String>,
    sku: Option<String>,
    health: SlotHealth,
    blockers: Value,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for Slot {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.into(),
            node_id: row.node_id.into(),
            slot_index: row.slot_index,
            kind: row.kind,
            state: row.state,
            pci_address: row.pci_address,
            model: row.model,
            iommu_group: row.iommu_group,
            nvme_device: row.nvme_device,
            numa_node: row.numa_node,
            fabric_mode: row.fabric_mode,
            fabric_vf: row.fabric_vf,
            fabric_numa: row.fabric_numa,
            cleanup_reason: row.cleanup_reason,
            mac_address: row.mac_address,
            private_ip: row.private_ip,
            sku: row.sku,
            health: row.health,
            blockers: stored_blockers(&row.blockers),
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

pub async fn get(conn: &mut Connection, id: SlotId) -> Result<Option<Slot>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, node_id, slot_index, kind AS "kind: SlotKind", state AS "state: SlotState", pci_address, model,
                 iommu_group, nvme_device, numa_node,
             fabric_mode AS "fabric_mode: FabricMode", fabric_vf, fabric_numa, cleanup_reason, mac_address,
                 private_ip, sku, health AS "health: SlotHealth", blockers, version, created_at, updated_at
         FROM node_resource_slots WHERE id = $1"#,
        id.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Slot::from))
}

pub async fn lock(conn: &mut Connection, id: SlotId) -> Result<Option<Slot>, sqlx::Error> {
    sqlx::query_scalar!("SELECT id FROM node_resource_slots WHERE id = $1 FOR NO KEY UPDATE", id.uuid())
        .fetch_optional(&mut *conn)
        .await?;
    get(conn, id).await
}

/// All slots of a node in the order of their places, held until the transaction ends.
pub async fn lock_of_node(conn: &mut Connection, node: NodeId) -> Result<Vec<Slot>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT id FROM node_resource_slots WHERE node_id = $1 ORDER BY slot_index FOR NO KEY UPDATE",
        node.uuid(),
    )
    .fetch_all(&mut *conn)
    .await?;
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, node_id, slot_index, kind AS "kind: SlotKind", state AS "state: SlotState", pci_address, model,
                 iommu_group, nvme_device, numa_node,
             fabric_mode AS "fabric_mode: FabricMode", fabric_vf, fabric_numa, cleanup_reason, mac_address,
                 private_ip, sku, health AS "health: SlotHealth", blockers, version, created_at, updated_at
         FROM node_resource_slots WHERE node_id = $1 ORDER BY slot_index"#,
        node.uuid(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Slot::from).collect())
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    pub node: Option<NodeId>,
    pub state: Option<SlotState>,
    pub health: Option<SlotHealth>,
    pub region: Option<&'a str>,
    pub sku: Option<&'a str>,
}

/// Slots of nodes that are still part of the fleet.
pub async fn list(
    conn: &mut Connection,
    filter: Filter<'_>,
    page: &PageQuery,
) -> Result<Vec<Slot>, sqlx::Error> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT s.id, s.node_id, s.slot_index, s.kind AS "kind: SlotKind", s.state AS "state: SlotState", s.pci_address,
                 s.model, s.iommu_group, s.nvme_device,
             s.numa_node, s.fabric_mode AS "fabric_mode: FabricMode", s.fabric_vf, s.fabric_numa, s.cleanup_reason,
                 s.mac_address, s.private_ip, s.sku, s.health AS "health: SlotHealth", s.blockers,
             s.version, s.created_at, s.updated_at
         FROM node_resource_slots s JOIN nodes n ON n.id = s.node_id
         WHERE s.id > $1 AND n.state <> 'deleted' AND ($3::uuid IS NULL OR s.node_id = $3)
           AND ($4::text IS NULL OR s.state = $4) AND ($5::text IS NULL OR s.health = $5)
           AND ($6::text IS NULL OR n.region = $6) AND ($7::text IS NULL OR s.sku = $7)
         ORDER BY s.id LIMIT $2"#,
        page.after(),
        page.limit(),
        filter.node.map(NodeId::uuid),
        filter.state.map(SlotState::name),
        filter.health.map(SlotHealth::name),
        filter.region,
        filter.sku,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Slot::from).collect())
}

pub async fn counts(conn: &mut Connection, node: NodeId) -> Result<Vec<SlotCount>, sqlx::Error> {
    sqlx::query_as!(
        SlotCount,
        r#"SELECT state AS "state: SlotState", count(*) AS "count!" FROM node_resource_slots
           WHERE node_id = $1 GROUP BY state ORDER BY state"#,
        node.uuid(),
    )
    .fetch_all(conn)
    .await
}

/// What stands in the way of any slot of the node.
pub async fn blockers(conn: &mut Connection, node: NodeId) -> Result<Vec<ReadinessBlocker>, sqlx::Error> {
    let rows = sqlx::query_scalar!(
        "SELECT blockers FROM node_resource_slots WHERE node_id = $1 AND blockers <> '[]' ORDER BY slot_index",
        node.uuid(),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.iter().flat_map(stored_blockers).collect())
}

/// What changes along with a slot's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Along<'a> {
    pub health: Option<SlotHealth>,
    pub sku: Option<&'a str>,
}

/// Applies a step that the lifecycle allowed; without one, only what goes along.
pub async fn transition(
    conn: &mut Connection,
    slot: &Slot,
    to: Option<SlotState>,
    along: Along<'_>,
    now: DateTime<Utc>,
) -> Result<Swap<Slot>, Failure> {
    let row = sqlx::query_as!(
        Row,
        r#"UPDATE node_resource_slots SET state = $3, health = coalesce($4, health), sku = coalesce($5, sku),
             version = version + 1, updated_at = $6
         WHERE id = $1 AND version = $2
         RETURNING id, node_id, slot_index, kind AS "kind: SlotKind", state AS "state: SlotState", pci_address,
             model, iommu_group, nvme_device, numa_node,
             fabric_mode AS "fabric_mode: FabricMode", fabric_vf, fabric_numa, cleanup_reason, mac_address,
                 private_ip, sku, health AS "health: SlotHealth", blockers, version, created_at, updated_at"#,
        slot.id.uuid(),
        slot.version,
        to.unwrap_or(slot.state).name(),
        along.health.map(SlotHealth::name),
        along.sku,
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let current = match row {
        Some(_) => None,
        None => get(conn, slot.id).await?.map(|slot| slot.version),
    };
    Ok(Swap::from_update(row.map(Slot::from), current))
}

fn number(value: Option<u32>) -> Option<i32> {
    value.and_then(|n| i32::try_from(n).ok())
}

/// A new slot as discovery proposes it.
pub async fn insert(
    conn: &mut Connection,
    id: SlotId,
    node: NodeId,
    (place, candidate): (u32, &CandidateSlot),
    fabric_numa: Option<i32>,
    now: DateTime<Utc>,
) -> Result<(), Failure> {
    sqlx::query!(
        "INSERT INTO node_resource_slots (id, node_id, slot_index, kind, pci_address, model, iommu_group, nvme_device,
             numa_node, fabric_mode, fabric_vf, blockers, created_at, updated_at, fabric_numa)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, CASE WHEN $10::text IS NULL THEN 'none' ELSE 'vf' END, $10,
             $11, $12, $12, $13)",
        id.uuid(),
        node.uuid(),
        number(Some(place)),
        SlotKind::from(candidate.kind).name(),
        candidate.pci_address.as_deref(),
        candidate.model,
        number(candidate.iommu_group),
        candidate.nvme_device.as_deref(),
        number(candidate.numa_node),
        candidate.fabric_vf.as_deref(),
        serde_json::to_value(&candidate.blockers)?,
        now,
        fabric_numa as Option<i32>,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A known slot with other surroundings. `to` is where it goes when its approval no longer holds.
pub async fn propose(
    conn: &mut Connection,
    slot: &Slot,
    to: Option<SlotState>,
    candidate: &CandidateSlot,
    fabric_numa: Option<i32>,
    now: DateTime<Utc>,
) -> Result<(), Failure> {
    sqlx::query!(
        "UPDATE node_resource_slots SET state = $2, fabric_numa = $10, model = $3, iommu_group = $4, nvme_device = $5, numa_node = $6,
             fabric_mode = CASE WHEN $7::text IS NULL THEN 'none' ELSE 'vf' END, fabric_vf = $7, blockers = $8,
             health = 'unknown', version = version + 1, updated_at = $9
         WHERE id = $1",
        slot.id.uuid(),
        to.unwrap_or(slot.state).name(),
        candidate.model,
        number(candidate.iommu_group),
        candidate.nvme_device.as_deref(),
        number(candidate.numa_node),
        candidate.fabric_vf.as_deref(),
        serde_json::to_value(&candidate.blockers)?,
        now,
        fabric_numa as Option<i32>,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Where the fabric's function of a slot is, as a discovery found it.
pub async fn set_fabric_numa(
    conn: &mut Connection,
    slot: &Slot,
    fabric_numa: Option<i32>,
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE node_resource_slots SET fabric_numa = $2, version = version + 1, updated_at = $3 WHERE id = $1",
        slot.id.uuid(),
        fabric_numa,
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What stands in the way of a slot, and with it the health when that follows.
pub async fn set_blockers(
    conn: &mut Connection,
    slot: &Slot,
    blockers: &[Blocker],
    health: Option<SlotHealth>,
    now: DateTime<Utc>,
) -> Result<(), Failure> {
    sqlx::query!(
        "UPDATE node_resource_slots SET blockers = $2, health = coalesce($3, health), version = version + 1,
             updated_at = $4
         WHERE id = $1",
        slot.id.uuid(),
        serde_json::to_value(blockers)?,
        health.map(SlotHealth::name),
        now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// After a probe that passed: what was approved and has nothing in its way becomes available, and what is
/// available and was in doubt is healthy again. Returns how many became available.
pub async fn validated(
    conn: &mut Connection,
    node: NodeId,
    (from, to): (SlotState, SlotState),
    now: DateTime<Utc>,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query!(
        "UPDATE node_resource_slots SET state = $3, health = 'healthy', version = version + 1, updated_at = $4
         WHERE node_id = $1 AND state = $2 AND blockers = '[]'",
        node.uuid(),
        from.name(),
        to.name(),
        now,
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query!(
        "UPDATE node_resource_slots SET health = 'healthy', version = version + 1, updated_at = $3
         WHERE node_id = $1 AND state = $2 AND health = 'unknown' AND blockers = '[]'",
        node.uuid(),
        to.name(),
        now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// How many GPUs the node must have for the slots that were approved.
pub async fn expected_gpus(conn: &mut Connection, node: NodeId) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM node_resource_slots
           WHERE node_id = $1 AND kind = 'gpu' AND state NOT IN ('discovered', 'quarantined')"#,
        node.uuid(),
    )
    .fetch_one(conn)
    .await
}

/// How many slots of the node somebody approved.
pub async fn approved(conn: &mut Connection, node: NodeId) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM node_resource_slots WHERE node_id = $1 AND state <> 'discovered'"#,
        node.uuid(),
    )
    .fetch_one(conn)
    .await
}

/// The slot whose device a finding is about.
pub async fn lock_by_device(
    conn: &mut Connection,
    node: NodeId,
    pci: &str,
) -> Result<Option<Slot>, sqlx::Error> {
    let id = sqlx::query_scalar!(
        "SELECT id FROM node_resource_slots WHERE node_id = $1 AND pci_address = $2",
        node.uuid(),
        pci,
    )
    .fetch_optional(&mut *conn)
    .await?;
    match id {
        Some(id) => lock(conn, id.into()).await,
        None => Ok(None),
    }
}
