//! Slots as workflows move them: from wherever an earlier run left them. What changes meanwhile is a conflict, and
//! the step is tried again.

use std::collections::HashMap;

use fleet::api::{self, SlotState};
use kernel::{Failure, ids::SlotId};
use pg::WriteTx;

type ByState = HashMap<SlotState, Vec<SlotId>>;

async fn by_state(tx: &mut WriteTx, slots: &[SlotId]) -> Result<ByState, Failure> {
    let mut states = ByState::new();
    for slot in api::slot_facts(tx.conn(), slots).await? {
        states.entry(slot.state).or_default().push(slot.id);
    }
    Ok(states)
}

fn in_state(states: &ByState, state: SlotState) -> &[SlotId] {
    states.get(&state).map_or(&[], Vec::as_slice)
}

/// Nobody uses them any more; what was left there is removed now. Answers those that are to be cleaned.
pub async fn to_cleaning(tx: &mut WriteTx, slots: &[SlotId]) -> Result<Vec<SlotId>, Failure> {
    let states = by_state(tx, slots).await?;
    api::slots_clean(tx, in_state(&states, SlotState::InUse)).await?;
    api::slots_retry_cleaning(tx, in_state(&states, SlotState::CleanupBlocked)).await?;
    Ok([
        in_state(&states, SlotState::InUse),
        in_state(&states, SlotState::CleanupBlocked),
        in_state(&states, SlotState::Cleaning),
    ]
    .concat())
}

/// Frees reserved slots, which nobody has used.
pub async fn unreserve(tx: &mut WriteTx, slots: &[SlotId]) -> Result<(), Failure> {
    let states = by_state(tx, slots).await?;
    api::slots_unreserve(tx, in_state(&states, SlotState::Reserved)).await
}

/// Frees the slots of a launch that was undone on its node: nothing is left there.
pub async fn free_undone(tx: &mut WriteTx, slots: &[SlotId]) -> Result<(), Failure> {
    let states = by_state(tx, slots).await?;
    api::slots_unreserve(tx, in_state(&states, SlotState::Reserved)).await?;
    api::slots_clean(tx, in_state(&states, SlotState::InUse)).await?;
    let cleaning = [in_state(&states, SlotState::InUse), in_state(&states, SlotState::Cleaning)].concat();
    api::slots_cleaned(tx, &cleaning).await
}

/// Something may be left there: not sold until somebody has seen to it. One that is fenced already stays so.
pub async fn fence(tx: &mut WriteTx, slots: &[SlotId], reason: &str) -> Result<(), Failure> {
    let states = by_state(tx, slots).await?;
    api::slots_occupy(tx, in_state(&states, SlotState::Reserved)).await?;
    let used = [in_state(&states, SlotState::Reserved), in_state(&states, SlotState::InUse)].concat();
    api::slots_clean(tx, &used).await?;
    let cleaning = [used.as_slice(), in_state(&states, SlotState::Cleaning)].concat();
    api::slots_block(tx, &cleaning, reason).await
}
