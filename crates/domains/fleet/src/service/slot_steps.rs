//! Steps of slots with somebody's work in them, taken by the workflows that do that work.
//!
//! Each takes all of the slots or none: one that is not in the state that the step begins in is a conflict, and the
//! caller's transaction rolls back.

use kernel::{
    Code, Failure, Problem,
    ids::{NodeId, SlotId},
};
use lifecycle::{Lifecycle as _, Named as _};
use pg::WriteTx;

use crate::{
    model::{
        events::NodeDoubted,
        slot::{SlotEvent, SlotLifecycle, SlotState},
        text::tame,
    },
    store::slot_steps as rows,
};

const LONGEST_REASON: usize = 500;

/// What was reserved is used from now on.
pub async fn slots_occupy(tx: &mut WriteTx, slots: &[SlotId]) -> Result<(), Failure> {
    step(tx, slots, SlotState::Reserved, SlotEvent::Occupy, None).await
}

/// What was reserved and never used can be sold again.
pub async fn slots_unreserve(tx: &mut WriteTx, slots: &[SlotId]) -> Result<(), Failure> {
    step(tx, slots, SlotState::Reserved, SlotEvent::Free, None).await
}

/// Nobody uses it any more; what they left is removed now.
pub async fn slots_clean(tx: &mut WriteTx, slots: &[SlotId]) -> Result<(), Failure> {
    step(tx, slots, SlotState::InUse, SlotEvent::Clean, None).await
}

/// Proven clean: it can be sold again.
pub async fn slots_cleaned(tx: &mut WriteTx, slots: &[SlotId]) -> Result<(), Failure> {
    step(tx, slots, SlotState::Cleaning, SlotEvent::Cleaned, None).await
}

/// It could not be cleaned, and is not sold until somebody has seen to it.
pub async fn slots_block(tx: &mut WriteTx, slots: &[SlotId], reason: &str) -> Result<(), Failure> {
    let reason = tame(reason, LONGEST_REASON);
    step(tx, slots, SlotState::Cleaning, SlotEvent::CleaningFailed, Some(&reason)).await
}

/// Cleaning begins anew.
pub async fn slots_retry_cleaning(tx: &mut WriteTx, slots: &[SlotId]) -> Result<(), Failure> {
    step(tx, slots, SlotState::CleanupBlocked, SlotEvent::Retry, None).await
}

/// Somebody has looked: nothing is left there.
pub async fn slots_force_cleaned(tx: &mut WriteTx, slots: &[SlotId]) -> Result<(), Failure> {
    step(tx, slots, SlotState::CleanupBlocked, SlotEvent::ForceCleanup, None).await
}

/// Something did not work there: not sold until a probe of the node has passed, which is asked for at once.
pub async fn slots_doubt(tx: &mut WriteTx, node: NodeId, slots: &[SlotId]) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    rows::doubt(tx.conn(), slots, now).await?;
    tx.emit(&NodeDoubted { node_id: node })?;
    Ok(())
}

async fn step(
    tx: &mut WriteTx,
    slots: &[SlotId],
    from: SlotState,
    event: SlotEvent,
    reason: Option<&str>,
) -> Result<(), Failure> {
    let conflict = |text: String| Problem::new(Code::Conflict, text).detail("event", event.name());
    let Some(to) = SlotLifecycle::next(from, event) else {
        return Err(conflict(format!(
            "The state {} of a slot does not allow {}.",
            from.name(),
            event.name()
        ))
        .into());
    };
    let mut ids: Vec<SlotId> = slots.to_vec();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Ok(());
    }
    let now = tx.db().ambient().now();
    let states = rows::lock(tx.conn(), &ids).await?;
    let fitting = states.iter().filter(|state| **state == from).count();
    if fitting != ids.len() {
        let text = format!("{fitting} of {} slots are {}; all must be.", ids.len(), from.name());
        return Err(conflict(text).into());
    }
    let done = rows::step(tx.conn(), &ids, (from, to), reason, now).await?;
    if usize::try_from(done).ok() != Some(ids.len()) {
        return Err(conflict("The slots were changed by another request.".to_owned()).into());
    }
    Ok(())
}
