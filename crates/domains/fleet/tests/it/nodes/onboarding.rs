use bus::Bus;
use chrono::TimeDelta;
use fleet::model::node::NodeState;
use fleet::model::slot::SlotHealth;
use fleet::model::slot::SlotState;
use fleet::{
    jobs,
    model::slot::Approval,
    service::{
        agent_tasks::{node_release, node_undrain},
        dispatch::expire_overdue,
        onboarding::node_discover,
        slots::{node_slots_approve, slot_quarantine, slot_restore, slot_withdraw},
        validations::{node_validate, node_validation_list},
    },
};
use kernel::{Code, Failure, PageQuery, ids::NodeId};
use node_proto::{
    catalog::ProbeProfile,
    contract::{Ending, FailureCode, TaskFailure},
};

use super::world::{World, candidate, code, pci, reason, report, succeeded, topology};

async fn validate(world: &World, node: NodeId) -> Result<(), Failure> {
    let mut tx = world.write("node.validate").await;
    node_validate(&world.fleet, &mut tx, node, ProbeProfile::Light).await?;
    tx.commit(None).await.unwrap();
    Ok(())
}

async fn discover(world: &World, node: NodeId) -> Result<(), Failure> {
    let mut tx = world.write("node.discover").await;
    node_discover(&world.fleet, &mut tx, node).await?;
    tx.commit(None).await.unwrap();
    Ok(())
}

async fn onboarding(world: &World, node: NodeId) -> (String, String) {
    let onboarding = world.detail(node).await.onboarding.unwrap();
    (onboarding.state.to_string(), onboarding.detail)
}

#[tokio::test]
async fn an_enrolled_node_is_discovered_approved_probed_and_active() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    world.onboarding_begin(node.id).await;
    world.onboarding_begin(node.id).await;
    assert_eq!(world.count("SELECT count(*) FROM node_tasks").await, 1, "a repeated event queues nothing");
    assert_eq!(onboarding(&world, node.id).await.0, "discovering");
    world.answer(node.id, succeeded(&topology(8, 0))).await;
    assert_eq!(onboarding(&world, node.id).await.0, "awaiting_approval");
    let slots = world.slots(node.id).await;
    assert_eq!(slots.len(), 8);
    assert!(
        slots.iter().all(|slot| slot.state == SlotState::Discovered && slot.health == SlotHealth::Unknown)
    );
    assert_eq!(world.events("nodes.discovered").await.len(), 1);
    assert_eq!(
        code(validate(&world, node.id).await),
        Some(Code::InvalidTransition),
        "nobody approved anything"
    );
    world.approve_all(node.id).await.unwrap();
    assert_eq!(world.state(node.id).await, "enrolling", "approved is not proven");
    assert!(world.slots(node.id).await.iter().all(|slot| slot.state == SlotState::Approved));
    world.answer(node.id, succeeded(&report(true))).await;
    assert_eq!(onboarding(&world, node.id).await.0, "done");
    assert_eq!(world.state(node.id).await, "active");
    assert!(
        world
            .slots(node.id)
            .await
            .iter()
            .all(|slot| slot.state == SlotState::Available && slot.health == SlotHealth::Healthy)
    );
    assert_eq!(world.events("nodes.activated").await.len(), 1);
    let evidence =
        node_validation_list(&mut world.read().await, node.id, &PageQuery::default()).await.unwrap().items;
    assert!(evidence.len() == 1 && evidence[0].passed);
}

#[tokio::test]
async fn the_consumer_takes_simulated_nodes_all_the_way_where_the_installation_wants_that() {
    let world = World::with(true).await;
    let (wake, listening) = world.test.db.listen();
    let bus = Bus::on_postgres(world.test.db.clone(), wake);
    let [onboarding_consumer] = <[_; 1]>::try_from(jobs::consumers(&world.fleet)).ok().unwrap();
    assert_eq!(onboarding_consumer.name(), "fleet-onboarding");
    let runner = bus.runner(onboarding_consumer);
    runner.run_once().await.unwrap();
    let turn = async || {
        while bus.relay().relay_batch().await.unwrap() > 0 {}
        while runner.run_once().await.unwrap() > 0 {}
    };
    let mut nodes = Vec::new();
    for (hostname, simulated) in [("sim-01", true), ("real-01", false)] {
        let (node, token) = world.node_like(hostname, simulated).await;
        world.enroll(&node, &token).await.unwrap();
        turn().await;
        world.answer(node.id, succeeded(&topology(2, 0))).await;
        turn().await;
        nodes.push(node.id);
    }
    assert_eq!(onboarding(&world, nodes[0]).await.0, "validating");
    assert_eq!(onboarding(&world, nodes[1]).await.0, "awaiting_approval", "a real one waits for a person");
    world.answer(nodes[0], succeeded(&report(true))).await;
    assert_eq!(world.state(nodes[0]).await, "active");
    assert_eq!(world.count("SELECT count(*) FROM dead_letters").await, 0);
    listening.abort();
}

#[tokio::test]
async fn slots_with_blockers_are_refused_by_name_and_left_out_of_all() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    world.onboarding_begin(node.id).await;
    world.answer(node.id, succeeded(&topology(3, 1))).await;
    let ids: Vec<_> = world.slots(node.id).await.iter().map(|slot| slot.id).collect();
    let mut tx = world.write("node.slots_approve").await;
    let named = Approval::Slots(ids);
    let refused = node_slots_approve(&world.fleet, &mut tx, node.id, &named, None).await;
    match refused {
        Err(Failure::Problem(problem)) => {
            assert_eq!(problem.code, Code::Unprocessable);
            assert_eq!(problem.details["blocked"][0]["blockers"][0]["code"], "iommu_group_shared");
        }
        other => panic!("{other:?}"),
    }
    tx.roll_back().await;
    world.approve_all(node.id).await.unwrap();
    let states: Vec<SlotState> = world.slots(node.id).await.into_iter().map(|slot| slot.state).collect();
    assert_eq!(states, [SlotState::Approved, SlotState::Approved, SlotState::Discovered]);
    let detail = world.detail(node.id).await;
    assert_eq!(detail.blockers.len(), 1);
}

#[tokio::test]
async fn a_failed_probe_sends_a_new_node_to_quarantine_and_only_a_passed_one_lets_it_out() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    world.onboarding_begin(node.id).await;
    world.answer(node.id, succeeded(&topology(1, 0))).await;
    world.approve_all(node.id).await.unwrap();
    world.answer(node.id, succeeded(&report(false))).await;
    assert_eq!(onboarding(&world, node.id).await, ("failed".to_owned(), "gpu_count".to_owned()));
    assert_eq!(world.state(node.id).await, "quarantined");
    assert_eq!(world.slots(node.id).await[0].state, SlotState::Approved, "not sold");
    let mut tx = world.write("node.release").await;
    let refused = node_release(&mut tx, node.id, &reason("try it"), None).await;
    assert_eq!(code(refused), Some(Code::InvalidTransition), "it never passed");
    tx.roll_back().await;
    world.transition(node.id, fleet::model::node::NodeEvent::Drain).await.unwrap();
    let mut tx = world.write("node.undrain").await;
    let refused = node_undrain(&world.fleet, &mut tx, node.id, &reason("try it"), None).await;
    assert_eq!(code(refused), Some(Code::InvalidTransition), "nor by the other door");
    tx.roll_back().await;
    world.tamper("UPDATE nodes SET state = 'quarantined'").await;
    validate(&world, node.id).await.unwrap();
    world.answer(node.id, succeeded(&report(true))).await;
    assert_eq!(world.slots(node.id).await[0].state, SlotState::Available);
    assert_eq!(world.state(node.id).await, "quarantined", "a person lets it out");
    let mut tx = world.write("node.release").await;
    node_release(&mut tx, node.id, &reason("it passed"), None).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(world.state(node.id).await, "active");
}

#[tokio::test]
async fn a_discovery_that_fails_or_is_not_answered_can_be_started_again() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    world.onboarding_begin(node.id).await;
    let failure = TaskFailure::new(FailureCode::Driver, "no\nsysfs");
    world.answer(node.id, Ending::Failed { failure }).await;
    assert_eq!(onboarding(&world, node.id).await, ("failed".to_owned(), "no sysfs".to_owned()));
    discover(&world, node.id).await.unwrap();
    assert_eq!(code(discover(&world, node.id).await), Some(Code::InvalidTransition), "one at a time");
    world.pass(TimeDelta::hours(1));
    assert_eq!(expire_overdue(&world.fleet, 10).await.unwrap(), 1);
    assert_eq!(onboarding(&world, node.id).await.0, "failed");
    assert_eq!(world.state(node.id).await, "enrolling", "silence is no evidence");
    discover(&world, node.id).await.unwrap();
    world.answer(node.id, succeeded(&topology(1, 0))).await;
    assert_eq!(onboarding(&world, node.id).await.0, "awaiting_approval");
}

#[tokio::test]
async fn a_discovery_again_keeps_ids_and_states_and_marks_what_is_gone() {
    let world = World::new().await;
    let node = world.active("gpu-01", 3).await;
    let before = world.slots(node.id).await;
    world
        .tamper(&format!(
            "UPDATE node_resource_slots SET state = 'in_use' WHERE id = '{}'",
            before[1].id.uuid()
        ))
        .await;
    discover(&world, node.id).await.unwrap();
    // The first changed its disk, the second too although it is in use, the third is gone, and a new one came.
    let mut found = topology(0, 0);
    found.candidates = vec![candidate(0), candidate(1), candidate(9)];
    found.candidates[0].nvme_device = Some("another".to_owned());
    found.candidates[1].nvme_device = Some("another".to_owned());
    world.answer(node.id, succeeded(&found)).await;
    let after = world.slots(node.id).await;
    let facts = |n: usize| (after[n].id == before[n].id, after[n].state, after[n].health);
    assert_eq!(
        facts(0),
        (true, SlotState::Discovered, SlotHealth::Unknown),
        "its approval was for another disk"
    );
    assert_eq!(after[0].nvme_device.as_deref(), Some("another"));
    assert_eq!(facts(1), (true, SlotState::InUse, SlotHealth::Healthy));
    assert_eq!(after[1].nvme_device.as_deref(), Some("nvme-1"), "nothing changes under somebody's work");
    assert_eq!(after[1].blockers[0].code, "changed");
    assert_eq!(facts(2), (true, SlotState::Available, SlotHealth::Failed));
    assert_eq!(after[2].blockers[0].code, "missing");
    assert_eq!((after[3].state, after[3].pci_address.clone()), (SlotState::Discovered, Some(pci(9))));
    assert_eq!(world.state(node.id).await, "active");
    assert_eq!(onboarding(&world, node.id).await.0, "done");
    // It is found again: known, and in doubt until a probe has passed.
    discover(&world, node.id).await.unwrap();
    world.answer(node.id, succeeded(&topology(3, 0))).await;
    let again = world.slots(node.id).await;
    assert_eq!((again[2].blockers.len(), again[2].health), (0, SlotHealth::Unknown));
    validate(&world, node.id).await.unwrap();
    world.answer(node.id, succeeded(&report(true))).await;
    assert_eq!(world.slots(node.id).await[2].health, SlotHealth::Healthy);
}

#[tokio::test]
async fn a_serving_node_that_fails_a_probe_is_cordoned_and_serves_on() {
    let world = World::new().await;
    let node = world.active("gpu-01", 2).await;
    validate(&world, node.id).await.unwrap();
    world.answer(node.id, succeeded(&report(false))).await;
    let detail = world.detail(node.id).await;
    assert_eq!(detail.node.state, NodeState::Active);
    assert!(detail.node.cordon_reason.unwrap().contains("validation probe failed"));
    assert!(world.slots(node.id).await.iter().all(|slot| slot.state == SlotState::Available));
}

#[tokio::test]
async fn a_node_that_describes_an_impossible_machine_gets_a_failed_discovery() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    world.onboarding_begin(node.id).await;
    world.answer(node.id, succeeded(&topology(300, 0))).await;
    assert_eq!(onboarding(&world, node.id).await.0, "failed");
    assert!(world.slots(node.id).await.is_empty());
}

#[tokio::test]
async fn slots_are_withdrawn_quarantined_and_restored_unless_somebody_is_there() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    let slot = world.slots(node.id).await.remove(0);
    let mut tx = world.write("slot.quarantine").await;
    assert_eq!(slot_quarantine(&mut tx, slot.id, None).await.unwrap().state, SlotState::Quarantined);
    let restored = slot_restore(&mut tx, slot.id, None).await.unwrap();
    assert_eq!((restored.state, restored.health), (SlotState::Approved, SlotHealth::Unknown));
    assert_eq!(code(slot_withdraw(&mut tx, slot.id, Some(1)).await), Some(Code::Conflict));
    assert_eq!(
        slot_withdraw(&mut tx, slot.id, Some(restored.version)).await.unwrap().state,
        SlotState::Discovered
    );
    tx.commit(None).await.unwrap();
    for state in ["reserved", "in_use", "cleaning", "cleanup_blocked"] {
        world.tamper(&format!("UPDATE node_resource_slots SET state = '{state}'")).await;
        let mut tx = world.write("slot.quarantine").await;
        assert_eq!(code(slot_quarantine(&mut tx, slot.id, None).await), Some(Code::InvalidTransition));
        assert_eq!(code(slot_withdraw(&mut tx, slot.id, None).await), Some(Code::InvalidTransition));
    }
}
