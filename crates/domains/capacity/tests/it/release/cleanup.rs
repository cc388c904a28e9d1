//! Slots that could not be cleaned.

use capacity::service::{
    release::force_release,
    slot_cleanup::{force_cleanup, slot_cleanup_retry, slot_force_cleanup},
};
use kernel::{
    Code,
    ids::{AllocationId, SlotId},
    text::Reason,
};

use super::world::{World, code, ended};

fn reason() -> Reason {
    Reason::parse("looked at it, nothing is left").unwrap()
}

/// A launch whose allocation and two slots came into these states, `live` with its claims; only one that is under way
/// has a live run. Which of the services could have left it so does not matter to who cleans up.
async fn with_slots(world: &World, state: &str, slot_state: &str, live: bool) -> (AllocationId, Vec<SlotId>) {
    let made = world.launched().await;
    let (a, mut slots) = (made.id.uuid(), made.slot_ids);
    slots.sort_unstable();
    let (opened, closed) = match state {
        "active" => ("now()", "NULL"),
        "release_failed" => ("now()", "now()"),
        _ => ("NULL", "NULL"),
    };
    let finished = if state == "failed" { "now()" } else { "NULL" };
    let end = "UPDATE saga_runs SET state = 'succeeded', finished_at = now() WHERE subject =";
    let run = if state == "provisioning" { String::new() } else { format!("{end} '{}'", made.id) };
    let free = "UPDATE capacity_holdings SET gpus = gpus - 2, allocations = allocations - 1";
    let freed = if live { "" } else { free };
    world
        .test
        .tamper(&format!(
            "UPDATE allocations SET state = '{state}', meter_opened_at = {opened}, meter_closed_at = {closed},
                 finished_at = {finished} WHERE id = '{a}';
             UPDATE node_resource_slots SET state = '{slot_state}'
                 WHERE id IN (SELECT slot_id FROM capacity_claims WHERE allocation_id = '{a}');
             UPDATE capacity_claims SET freed_at = now() WHERE allocation_id = '{a}' AND NOT {live};
             {run}; {freed};
             SELECT node_capacity_refresh(array_agg(id)) FROM nodes"
        ))
        .await;
    (made.id, slots)
}

async fn slots_in(world: &World, slots: &[SlotId], state: &str) -> i64 {
    let (a, b) = (slots[0].uuid(), slots[1].uuid());
    world
        .count(&format!(
            "SELECT count(*) FROM node_resource_slots WHERE id IN ('{a}', '{b}') AND state = '{state}'"
        ))
        .await
}

#[tokio::test]
async fn a_release_that_cannot_be_finished_is_ended_by_an_operator_who_looked() {
    let world = World::new().await;
    let (id, slots) = with_slots(&world, "release_failed", "cleanup_blocked", true).await;
    let mut tx = world.as_operator().await;
    let result = force_cleanup(&mut tx, id, false, &reason(), None).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::ValidationError), "nobody looked");
    assert_eq!(slots_in(&world, &slots, "cleanup_blocked").await, 2);

    let mut tx = world.as_operator().await;
    let result = force_cleanup(&mut tx, id, true, &reason(), None).await;
    let after = ended(tx, result).await.unwrap();
    assert!(after.state.is_over());
    assert_eq!(slots_in(&world, &slots, "available").await, 2);
    let live = "SELECT count(*) FROM capacity_claims WHERE freed_at IS NULL";
    assert_eq!(world.count(live).await, 0);
    assert_eq!(world.count("SELECT sum(gpus)::bigint FROM capacity_holdings").await, 0);

    let mut tx = world.as_operator().await;
    let result = force_cleanup(&mut tx, id, true, &reason(), None).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::InvalidTransition), "once");
}

#[tokio::test]
async fn an_active_allocation_cannot_be_cleaned_away() {
    let world = World::new().await;
    let (id, slots) = with_slots(&world, "active", "in_use", true).await;
    let mut tx = world.as_operator().await;
    let result = force_cleanup(&mut tx, id, true, &reason(), None).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::InvalidTransition));
    let mut tx = world.as_operator().await;
    let result = slot_force_cleanup(&mut tx, slots[0], true, &reason()).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::InvalidTransition));
    assert_eq!(slots_in(&world, &slots, "in_use").await, 2);
}

#[tokio::test]
async fn slots_of_a_failed_launch_are_cleaned_together_and_once() {
    let world = World::new().await;
    let (id, slots) = with_slots(&world, "failed", "cleanup_blocked", false).await;
    let mut tx = world.as_operator().await;
    let result = slot_cleanup_retry(&mut tx, slots[1]).await;
    let cleanup = ended(tx, result).await.unwrap();
    assert_eq!((cleanup.allocation_id, &cleanup.slot_ids), (id, &slots));
    for slot in &slots {
        let mut tx = world.as_operator().await;
        let result = slot_cleanup_retry(&mut tx, *slot).await;
        assert_eq!(code(ended(tx, result).await), Some(Code::InvalidTransition));
        let mut tx = world.as_operator().await;
        let result = slot_force_cleanup(&mut tx, *slot, true, &reason()).await;
        assert_eq!(code(ended(tx, result).await), Some(Code::InvalidTransition), "it is being cleaned");
    }
    assert_eq!(slots_in(&world, &slots, "cleaning").await, 2);
    assert_eq!(world.live_runs(&slots[0].to_string()).await, 1);
}

#[tokio::test]
async fn a_slot_is_free_by_the_word_of_an_operator_and_only_that_slot() {
    let world = World::new().await;
    let (id, slots) = with_slots(&world, "failed", "cleanup_blocked", false).await;
    let mut tx = world.as_operator().await;
    let result = slot_force_cleanup(&mut tx, slots[0], true, &reason()).await;
    assert_eq!(ended(tx, result).await.unwrap().allocation_id, Some(id));
    assert_eq!(slots_in(&world, &slots, "available").await, 1);
    assert_eq!(slots_in(&world, &slots, "cleanup_blocked").await, 1);
    let audited = format!(
        "SELECT count(*) FROM audit_logs WHERE org_id = '{}' AND target_id = '{}'",
        world.org.uuid(),
        slots[0]
    );
    assert_eq!(world.count(&audited).await, 1, "in the tenant's trail");
}

#[tokio::test]
async fn a_slot_that_an_allocation_still_holds_is_left_to_the_allocation() {
    let world = World::new().await;
    let (id, slots) = with_slots(&world, "release_failed", "cleanup_blocked", true).await;
    let mut tx = world.as_operator().await;
    let result = slot_force_cleanup(&mut tx, slots[0], true, &reason()).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::InUse));
    let mut tx = world.as_operator().await;
    let result = slot_cleanup_retry(&mut tx, slots[0]).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::InUse));
    let mut tx = world.as_operator().await;
    let result = force_release(&world.capacity, &mut tx, id, &reason(), None).await;
    ended(tx, result).await.unwrap();
    assert_eq!(world.state(id).await, "releasing", "its release is tried again");
}

#[tokio::test]
async fn whatever_lost_its_workflow_is_ended_by_an_operator() {
    let world = World::new().await;
    let lost = "UPDATE saga_runs SET state = 'stuck', failure = 'lost', finished_at = now() WHERE subject =";
    let (id, slots) = with_slots(&world, "provisioning", "in_use", true).await;
    world.sql(&format!("{lost} '{id}'")).await;
    let mut tx = world.as_operator().await;
    let result = force_release(&world.capacity, &mut tx, id, &reason(), None).await;
    ended(tx, result).await.unwrap();
    assert_eq!(world.state(id).await, "released");
    assert_eq!(slots_in(&world, &slots, "cleanup_blocked").await, 2, "what is left there is not known");

    let id = world.allocation("releasing").await;
    for (lose, live) in [(false, 1), (true, 1)] {
        if lose {
            world.sql(&format!("{lost} '{id}'")).await;
            assert_eq!(world.live_runs(&id.to_string()).await, 0);
        }
        let mut tx = world.as_operator().await;
        let result = force_release(&world.capacity, &mut tx, id, &reason(), None).await;
        ended(tx, result).await.unwrap();
        assert_eq!(world.live_runs(&id.to_string()).await, live);
        assert_eq!(world.events(id, "retry").await, i64::from(lose));
    }
}

#[tokio::test]
async fn a_slot_that_nobody_holds_and_nobody_cleans_can_be_cleaned_again() {
    let world = World::new().await;
    let (_, slots) = with_slots(&world, "failed", "cleaning", false).await;
    let mut tx = world.as_operator().await;
    let result = slot_force_cleanup(&mut tx, slots[0], true, &reason()).await;
    ended(tx, result).await.unwrap();
    assert_eq!(slots_in(&world, &slots, "available").await, 1);
    let mut tx = world.as_operator().await;
    let result = slot_cleanup_retry(&mut tx, slots[1]).await;
    assert_eq!(ended(tx, result).await.unwrap().slot_ids, [slots[1]]);
    let (_, slots) = with_slots(&world, "active", "in_use", true).await;
    let mut tx = world.as_operator().await;
    let result = slot_force_cleanup(&mut tx, slots[0], true, &reason()).await;
    assert_eq!(code(ended(tx, result).await), Some(Code::InvalidTransition), "somebody uses it");
}
