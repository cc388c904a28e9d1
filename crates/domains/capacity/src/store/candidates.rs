//! What the fleet could take. All through functions of the fleet's schema, which requests may call as well.

use std::collections::BTreeMap;

use fleet::api::SlotKind;
use kernel::{
    Failure,
    ids::{NodeId, PoolId, SlotId},
};
use node_proto::catalog::SlotDevices;
use pg::Connection;

use crate::model::placement::{Installs, NodeView, Packing, Request, SlotView, Take};

/// Which slots a product is made of.
#[derive(Clone, Copy, Debug)]
pub struct SlotsOf<'a> {
    pub kind: SlotKind,
    pub model: &'a str,
}

/// How candidates are looked for.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    pub packing: Packing,
    /// Nodes at most.
    pub limit: u32,
    /// Wait for what somebody else holds. Only while holding no candidate.
    pub wait: bool,
}

/// A node that is held until the transaction ends, with its free slots.
pub struct Candidate {
    pub view: NodeView,
    pub ssh_host: String,
    pub ssh_port: i32,
    pub devices: BTreeMap<SlotId, SlotDevices>,
}

fn bound(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// The best nodes of a region, in the order of the packing rule.
pub async fn lock(
    conn: &mut Connection,
    of: SlotsOf<'_>,
    region: &str,
    request: &Request,
    search: Search,
) -> Result<Vec<Candidate>, Failure> {
    let whole = matches!(request.take, Take::Whole { .. });
    let rows = sqlx::query!(
        r#"SELECT node_id AS "node_id!", free AS "free!", total AS "total!", ssh_host AS "ssh_host!",
               ssh_port AS "ssh_port!", slot_id AS "slot_id!", slot_index AS "slot_index!", numa_node, fabric_vf,
               fabric_numa, pci_address, nvme_device
           FROM fleet_candidates(ROW($1, $2, $3, $4, $5, $6, $7, $8)::slot_request, $9, $10, $11, $12)"#,
        of.kind.name(),
        of.model,
        region,
        request.sku,
        request.pool.map(PoolId::uuid),
        serde_json::to_value(&request.labels)?,
        bound(request.take.slots().max(1)),
        whole,
        bound(request.count),
        search.packing == Packing::Spread,
        bound(search.limit),
        search.wait,
    )
    .fetch_all(conn)
    .await?;
    let mut found: Vec<Candidate> = Vec::new();
    for row in rows {
        let node = NodeId::from(row.node_id);
        if found.last().is_none_or(|candidate| candidate.view.id != node) {
            let view = NodeView {
                id: node,
                region: region.to_owned(),
                pool: request.pool,
                labels: request.labels.clone(),
                placeable: true,
                total: count(row.total),
                cleaning: 0,
                blocked: 0,
                whole,
                slots: Vec::new(),
                free: count(row.free),
            };
            found.push(Candidate {
                view,
                ssh_host: row.ssh_host,
                ssh_port: row.ssh_port,
                devices: BTreeMap::new(),
            });
        }
        let Some(candidate) = found.last_mut() else { continue };
        let (id, index) = (SlotId::from(row.slot_id), count(row.slot_index));
        candidate.view.slots.push(SlotView {
            id,
            index,
            numa: row.numa_node,
            fabric_vf: row.fabric_vf.clone(),
            fabric_numa: row.fabric_numa,
            needs_fabric: of.kind == SlotKind::Gpu,
        });
        let devices = SlotDevices {
            slot_index: index,
            pci_address: row.pci_address,
            nvme_device: row.nvme_device,
            fabric_vf: row.fabric_vf,
            numa_node: row.numa_node.and_then(|numa| u32::try_from(numa).ok()),
        };
        candidate.devices.insert(id, devices);
    }
    Ok(found)
}

/// The counts of the few nodes of every region that decide whether a request fits, would fit, or could be changed so
/// that it does. So many of the best nodes cannot hide a node that matters: each of them holds one slot at least.
pub async fn outlook(
    conn: &mut Connection,
    of: SlotsOf<'_>,
    request: &Request,
) -> Result<Vec<NodeView>, Failure> {
    let whole = match request.take {
        Take::Whole { slots } => Some(bound(slots)),
        Take::Slots { .. } => None,
    };
    let rows = sqlx::query!(
        r#"SELECT node_id AS "node_id!", region AS "region!", placeable AS "placeable!", total AS "total!",
               free AS "free!", cleaning AS "cleaning!", blocked AS "blocked!", whole AS "whole!"
           FROM fleet_outlook($1, $2, $3, $4, $5, $6, $7)"#,
        of.kind.name(),
        of.model,
        request.sku,
        request.pool.map(PoolId::uuid),
        serde_json::to_value(&request.labels)?,
        whole,
        bound(request.take.slots().max(1).saturating_mul(request.count)),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| NodeView {
            id: NodeId::from(row.node_id),
            region: row.region,
            pool: request.pool,
            labels: request.labels.clone(),
            placeable: row.placeable,
            total: count(row.total),
            cleaning: count(row.cleaning),
            blocked: count(row.blocked),
            whole: row.whole,
            slots: Vec::new(),
            free: count(row.free),
        })
        .collect())
}

/// Those of them whose node can be installed anew.
pub async fn installable<T>(
    conn: &mut Connection,
    mut found: Vec<T>,
    node: impl Fn(&T) -> NodeId,
    installs: Installs,
) -> Result<Vec<T>, Failure> {
    if installs == Installs::Every || found.is_empty() {
        return Ok(found);
    }
    let nodes: Vec<_> = found.iter().map(|one| node(one).uuid()).collect();
    let simulated =
        sqlx::query_scalar!(r#"SELECT fleet_simulated($1) AS "id!""#, &nodes).fetch_all(conn).await?;
    found.retain(|one| simulated.contains(&node(one).uuid()));
    Ok(found)
}

/// Every region, in the order in which they are tried.
pub async fn regions(conn: &mut Connection) -> Result<Vec<String>, Failure> {
    Ok(sqlx::query_scalar!("SELECT code FROM regions ORDER BY code").fetch_all(conn).await?)
}
