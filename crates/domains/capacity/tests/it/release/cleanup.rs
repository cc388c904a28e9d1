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

/// An allocation in a state, with two slots in `slot_state` that it claims, or claimed.
async fn with_slots(world: &World, state: &str, slot_state: &str, live: bool) -> (AllocationId, Vec<SlotId>) {
    let id = world.allocation(state).await;
    let mut slots: Vec<SlotId> = vec![world.test.db.ambient().id(), world.test.db.ambient().id()];
    slots.sort_unstable();
    let (a, s, t) = (id.uuid(), slots[0].uuid(), slots[1].uuid());
    let (org, project, creator) = (world.org.uuid(), world.project.uuid(), world.creator.uuid());
    let freed = if live { "NULL" } else { "now()" };
    world
        .sql(&format!(
            "INSERT INTO regions (code, name, created_at, updated_at) VALUES ('eu', 'EU', now(), now())
                 ON CONFLICT DO NOTHING;
             INSERT INTO nodes (id, hostname, region, state, state_changed_at, created_at, updated_at)
                 SELECT node_id, node_id::text, 'eu', 'active', now(), now(), now() FROM allocations WHERE id = '{a}';
             INSERT INTO node_resource_slots (id, node_id, slot_index, kind, state, model, health, fabric_mode,
                     fabric_vf, created_at, updated_at)
                 SELECT s, a.node_id, n - 1, 'gpu', '{slot_state}', 'H200', 'healthy', 'vf', 'vf' || n, now(), now()
                 FROM allocations a, unnest(ARRAY['{s}'::uuid, '{t}'::uuid]) WITH ORDINALITY AS l (s, n) WHERE a.id = '{a}';
             UPDATE allocations SET slot_ids = ARRAY['{s}'::uuid, '{t}'::uuid] WHERE id = '{a}';
             INSERT INTO capacity_node_modes SELECT node_id, false FROM allocations WHERE id = '{a}';
             INSERT INTO capacity_claims (allocation_id, node_id, slot_id, exclusive, claimed_at, freed_at)
                 SELECT a.id, a.node_id, s, false, now(), {freed}
                 FROM allocations a, unnest(a.slot_ids) AS s WHERE a.id = '{a}';
             INSERT INTO capacity_holdings SELECT '{org}', k, h, 1, 1 FROM (VALUES ('1_org', '{org}'::uuid),
                 ('2_project', '{project}'::uuid), ('3_person', '{creator}'::uuid)) AS v (k, h) WHERE {live}
                 ON CONFLICT (org_id, kind, holder) DO UPDATE SET gpus = capacity_holdings.gpus + 1,
                     allocations = capacity_holdings.allocations + 1"
        ))
        .await;
    (id, slots)
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
