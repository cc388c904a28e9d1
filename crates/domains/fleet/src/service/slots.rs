//! Slots: proposed by discovery, approved by people, proven by probes.

use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    ids::{NodeId, SlotId, TaskId},
};
use lifecycle::Named as _;
use pg::{ReadTx, WriteTx};
use serde_json::json;

use super::{changed, found, key_waits::slots_explain, onboarding::validate_after_approval};
use crate::{
    Fleet,
    model::{
        slot::{Approval, Slot, SlotEvent, SlotHealth, approvable},
        text::EligibleSku,
    },
    store::{self, slots::Along},
};

pub use crate::store::slots::Filter as SlotFilter;

pub async fn slot_list(
    tx: &mut ReadTx,
    filter: SlotFilter<'_>,
    page: &PageQuery,
) -> Result<Page<Slot>, Failure> {
    if let Some(node) = filter.node {
        found(store::nodes::get(tx.conn(), node).await?, "node")?;
    }
    let mut slots = store::slots::list(tx.conn(), filter, page).await?;
    slots_explain(tx.conn(), &mut slots).await?;
    Ok(page.page(slots, |slot| slot.id.uuid()))
}

pub async fn slot_get(tx: &mut ReadTx, id: SlotId) -> Result<Slot, Failure> {
    let mut slot = found(store::slots::get(tx.conn(), id).await?, "slot")?;
    slots_explain(tx.conn(), std::slice::from_mut(&mut slot)).await?;
    Ok(slot)
}

/// Approves slots and has the node probed; they can be sold when the probe has passed.
pub async fn node_slots_approve(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    approval: &Approval,
    sku: Option<&EligibleSku>,
) -> Result<(Vec<Slot>, TaskId), Failure> {
    approve(fleet, tx, node, approval, sku).await
}

pub(crate) async fn approve(
    fleet: &Fleet,
    tx: &mut WriteTx,
    node: NodeId,
    approval: &Approval,
    sku: Option<&EligibleSku>,
) -> Result<(Vec<Slot>, TaskId), Failure> {
    let now = tx.db().ambient().now();
    found(store::nodes::lock(tx.conn(), node).await?, "node")?.check_takes_tasks()?;
    let onboarding = found(store::onboarding::lock(tx.conn(), node).await?, "onboarding")?;
    onboarding.validation()?;
    let slots = store::slots::lock_of_node(tx.conn(), node).await?;
    let along = Along { health: None, sku: sku.map(EligibleSku::as_str) };
    let mut approved = Vec::new();
    for slot in approvable(&slots, approval)? {
        let to = slot.after(SlotEvent::Approve)?;
        approved
            .push(store::slots::transition(tx.conn(), slot, Some(to), along, now).await?.or_problem("slot")?);
    }
    let task = validate_after_approval(fleet, tx, node).await?;
    tx.record("node", node, None::<&()>, Some(&json!({ "approved": approved, "task_id": task })))?;
    Ok((approved, task))
}

/// Takes the approval back. Refused while somebody's work is there.
pub async fn slot_withdraw(tx: &mut WriteTx, id: SlotId, if_match: Option<i64>) -> Result<Slot, Failure> {
    step(tx, id, SlotEvent::Withdraw, Along { health: Some(SlotHealth::Unknown), sku: None }, if_match).await
}

pub async fn slot_quarantine(tx: &mut WriteTx, id: SlotId, if_match: Option<i64>) -> Result<Slot, Failure> {
    step(tx, id, SlotEvent::Quarantine, Along { health: Some(SlotHealth::Failed), sku: None }, if_match).await
}

/// Out of quarantine; it can be sold again after the next probe that passes.
pub async fn slot_restore(tx: &mut WriteTx, id: SlotId, if_match: Option<i64>) -> Result<Slot, Failure> {
    step(tx, id, SlotEvent::Restore, Along { health: Some(SlotHealth::Unknown), sku: None }, if_match).await
}

async fn step(
    tx: &mut WriteTx,
    id: SlotId,
    event: SlotEvent,
    along: Along<'_>,
    if_match: Option<i64>,
) -> Result<Slot, Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::slots::lock(tx.conn(), id).await?, "slot")?;
    if if_match.is_some_and(|version| version != before.version) {
        return Err(Problem::version_conflict(before.version).into());
    }
    let to = before.after(event)?;
    if before.is_occupied() {
        let text = format!("The slot is {}: its cleanup has not completed.", before.state);
        return Err(Problem::new(Code::InvalidTransition, text)
            .detail("state", before.state.name())
            .suggest("Wait until it is clean; retry the cleanup if it failed.")
            .into());
    }
    let after =
        store::slots::transition(tx.conn(), &before, Some(to), along, now).await?.or_problem("slot")?;
    changed(tx, "slot", id, &before, &after)?;
    Ok(after)
}
