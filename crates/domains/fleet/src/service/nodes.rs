//! Nodes: made, shown, changed; and the one way in which their state changes.

use chrono::TimeDelta;
use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    ids::{NodeId, PoolId},
    policy::keys,
};
use lifecycle::Named as _;
use pg::{ReadTx, WriteTx};

use super::{changed, created, found, key_waits::node_key_blocker, node_trust::invalidation_key};
use crate::{
    Fleet,
    model::{
        contact::contact_state,
        events::{
            NodeActivated, NodeDeleted, NodeDraining, NodeEnrolled, NodeOffline, NodeQuarantined,
            NodeRecovered, NodeRemoving, NodeRetired,
        },
        node::{Node, NodeDetail, NodeEvent, NodeState, NodeSummary, Serves},
        slot::stored_blockers,
        text::{EligibleSku, Hostname, Labels, Reach, RegionCode},
        token::{IssuedToken, TokenPurpose},
    },
    store::{
        self,
        history::Step,
        nodes::{Change, NewNode},
    },
};

pub use crate::store::nodes::Filter as NodeFilter;

/// Changes a node's state: the lock, the table, the swap, the history, the event and the invalidation, always
/// together. Leaves the audit target alone: it is the caller's.
pub async fn transition(
    tx: &mut WriteTx,
    node: NodeId,
    event: NodeEvent,
    reason: &str,
) -> Result<Node, Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::nodes::lock(tx.conn(), node).await?, "node")?;
    let to = before.after(event)?;
    let after = store::nodes::transition(tx.conn(), &before, to, reason, now).await?.or_problem("node")?;
    let (actor, origin) = (tx.permit().actor(), tx.permit().origin().clone());
    let step = Step { node, from: before.state, to: after.state, event: event.name(), reason };
    store::history::insert(tx.conn(), &step, actor, &origin, now).await?;
    announce(tx, &after, event, reason)?;
    tx.invalidate(invalidation_key(node));
    Ok(after)
}

fn announce(tx: &mut WriteTx, node: &Node, event: NodeEvent, reason: &str) -> Result<(), Failure> {
    let (node_id, region, reason) = (node.id, node.region.clone(), reason.to_owned());
    match event {
        NodeEvent::Enroll => tx.emit(&NodeEnrolled { node_id, region, reason })?,
        NodeEvent::Activate | NodeEvent::Undrain => tx.emit(&NodeActivated { node_id, region, reason })?,
        NodeEvent::LoseContact => tx.emit(&NodeOffline { node_id, region, reason })?,
        NodeEvent::RegainContact | NodeEvent::Release => {
            tx.emit(&NodeRecovered { node_id, region, reason })?
        }
        NodeEvent::Quarantine => tx.emit(&NodeQuarantined { node_id, region, reason })?,
        NodeEvent::Drain => tx.emit(&NodeDraining { node_id, region, reason })?,
        NodeEvent::Retire => tx.emit(&NodeRetired { node_id, region, reason })?,
        NodeEvent::Remove => tx.emit(&NodeRemoving { node_id, region, reason })?,
        NodeEvent::Delete => tx.emit(&NodeDeleted { node_id, region, reason })?,
    }
    Ok(())
}

pub struct NodeRequest {
    pub hostname: Hostname,
    pub region: RegionCode,
    pub pool: Option<PoolId>,
    pub labels: Labels,
    pub sku_eligibility: Vec<EligibleSku>,
    pub serves: Serves,
    pub simulated: bool,
    pub ssh: Reach,
}

/// The node and its bootstrap token, which nobody can read again.
pub async fn node_create(
    fleet: &Fleet,
    tx: &mut WriteTx,
    request: NodeRequest,
) -> Result<(Node, IssuedToken), Failure> {
    let (now, id) = (tx.db().ambient().now(), tx.db().ambient().id::<NodeId>());
    check_pool(tx, request.pool, request.region.as_str()).await?;
    let skus = names(request.sku_eligibility);
    let new = NewNode {
        id,
        hostname: request.hostname.as_str(),
        region: request.region.as_str(),
        pool: request.pool,
        labels: &request.labels,
        sku_eligibility: &skus,
        serves: request.serves,
        simulated: request.simulated,
        ssh: &request.ssh,
        now,
    };
    let node = store::nodes::insert(tx.conn(), &new).await?;
    store::onboarding::insert(tx.conn(), id, now).await?;
    let token = super::tokens::issue(fleet, tx, &node, TokenPurpose::Bootstrap).await?;
    created(tx, "node", id, &node)?;
    Ok((node, token))
}

fn names(mut skus: Vec<EligibleSku>) -> Vec<String> {
    skus.sort();
    skus.dedup();
    skus.into_iter().map(EligibleSku::into_string).collect()
}

/// A node and its pool stand in the same region.
async fn check_pool(tx: &mut WriteTx, pool: Option<PoolId>, region: &str) -> Result<(), Failure> {
    let Some(id) = pool else { return Ok(()) };
    match store::pools::get(tx.conn(), id).await? {
        None => Err(Problem::field("pool_id", "there is no such pool").into()),
        Some(pool) if pool.region != region => {
            Err(Problem::field("pool_id", "the pool is in another region than the node").into())
        }
        Some(_) => Ok(()),
    }
}

pub async fn node_list(
    tx: &mut ReadTx,
    filter: NodeFilter<'_>,
    page: &PageQuery,
) -> Result<Page<NodeSummary>, Failure> {
    let nodes = store::nodes::list(tx.conn(), filter, page).await?;
    Ok(page.page(nodes, |summary| summary.node.id.uuid()))
}

pub async fn node_get(fleet: &Fleet, tx: &mut ReadTx, id: NodeId) -> Result<NodeDetail, Failure> {
    let now = fleet.db.ambient().now();
    let node = found(store::nodes::get(tx.conn(), id).await?, "node")?;
    let contact = store::nodes::contact(tx.conn(), id).await?;
    let onboarding = store::onboarding::get(tx.conn(), id).await?;
    let slots = store::slots::counts(tx.conn(), id).await?;
    let topology = store::topologies::get(tx.conn(), id).await?;
    let mut blockers =
        topology.and_then(|t| t.topology.get("blockers").map(stored_blockers)).unwrap_or_default();
    blockers.retain(|blocker| node.serves.is_blocked_by(&blocker.code));
    blockers.extend(node_key_blocker(tx.conn(), id).await?);
    blockers.extend(store::slots::blockers(tx.conn(), id).await?);
    let (open_findings, open_tasks) = store::nodes::open_counts(tx.conn(), id).await?;
    let occupants = fleet.occupants(tx.conn(), id).await?;
    let late_before = now - silence(fleet).await?;
    let contact_state = contact_state(contact.as_ref().map(|c| c.last_seen_at), late_before);
    Ok(NodeDetail {
        node,
        contact_state,
        contact,
        onboarding,
        slots,
        blockers,
        open_findings,
        open_tasks,
        occupants,
    })
}

/// After how long without a report a node counts as lost.
pub async fn silence(fleet: &Fleet) -> Result<TimeDelta, Failure> {
    let every = fleet.policy(keys::FLEET_HEARTBEAT_SECONDS).await?.get();
    let missed = fleet.policy(keys::FLEET_OFFLINE_AFTER_HEARTBEATS).await?.get();
    Ok(TimeDelta::seconds(every * missed))
}

#[derive(Default)]
pub struct NodeChange {
    pub labels: Option<Labels>,
    pub sku_eligibility: Option<Vec<EligibleSku>>,
    pub serves: Option<Serves>,
    pub pool: Option<Option<PoolId>>,
    /// What is named of it.
    pub ssh: Reach,
}

pub async fn node_update(
    tx: &mut WriteTx,
    id: NodeId,
    change: NodeChange,
    if_match: Option<i64>,
) -> Result<Node, Failure> {
    let before = editable(tx, id, if_match).await?;
    check_pool(tx, change.pool.flatten(), &before.region).await?;
    let skus = change.sku_eligibility.map(names);
    if let Some(serves) = change.serves.filter(|serves| *serves != before.serves) {
        // Before the node is written: slots are locked before what is counted of them.
        super::onboarding::judge_again(tx, id, serves).await?;
    }
    let change = Change {
        labels: change.labels.as_ref(),
        sku_eligibility: skus.as_deref(),
        serves: change.serves,
        pool: change.pool,
        cordon: None,
        ssh: change.ssh,
    };
    apply(tx, &before, change).await
}

/// While a node is cordoned no new work is placed there; what runs there runs on.
pub async fn node_cordon(
    tx: &mut WriteTx,
    id: NodeId,
    reason: &str,
    if_match: Option<i64>,
) -> Result<Node, Failure> {
    let before = editable(tx, id, if_match).await?;
    apply(tx, &before, Change { cordon: Some(Some(reason)), ..Change::default() }).await
}

pub async fn node_uncordon(tx: &mut WriteTx, id: NodeId, if_match: Option<i64>) -> Result<Node, Failure> {
    // Before the node, as who resumes after a restore: that one passes over cordoned nodes.
    store::inventories::mode_lock(tx.conn()).await?;
    let before = editable(tx, id, if_match).await?;
    if before.cordon_reason.is_none() {
        return Err(Problem::new(Code::InvalidTransition, "The node is not cordoned.").into());
    }
    if store::inventories::was_left_out(tx.conn(), id).await? {
        let text = "The node has not been compared with the records since the database was restored.";
        let what_to_do = "Bring the node back online, wait until it has reported and was compared (some \
                          minutes), check `gpuaas ops discrepancies list`, then uncordon it.";
        return Err(Problem::new(Code::InvalidTransition, text).suggest(what_to_do).into());
    }
    apply(tx, &before, Change { cordon: Some(None), ..Change::default() }).await
}

/// Cordons unless that was done already; the first reason stays. For use within another change.
pub async fn cordon_once(tx: &mut WriteTx, id: NodeId, reason: &str) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::nodes::lock(tx.conn(), id).await?, "node")?;
    if before.cordon_reason.is_none() {
        let change = Change { cordon: Some(Some(reason)), ..Change::default() };
        store::nodes::update(tx.conn(), &before, change, now).await?.or_problem("node")?;
        tx.invalidate(invalidation_key(id));
    }
    Ok(())
}

async fn editable(tx: &mut WriteTx, id: NodeId, if_match: Option<i64>) -> Result<Node, Failure> {
    let node = found(store::nodes::lock(tx.conn(), id).await?, "node")?;
    node.check_version(if_match)?;
    if node.state == NodeState::Deleted {
        return Err(Problem::new(Code::InvalidTransition, "The node was deleted.").into());
    }
    Ok(node)
}

async fn apply(tx: &mut WriteTx, before: &Node, change: Change<'_>) -> Result<Node, Failure> {
    let now = tx.db().ambient().now();
    let after = store::nodes::update(tx.conn(), before, change, now).await?.or_problem("node")?;
    changed(tx, "node", before.id, before, &after)?;
    tx.invalidate(invalidation_key(before.id));
    Ok(after)
}
