use chrono::TimeDelta;
use fleet::{
    model::node::NodeEvent,
    service::{
        agent_tasks::{node_drain, node_remove, node_retire},
        enrollment::renew,
        removal::{nodes_delete, tidy},
        tokens::node_repair_token,
    },
};
use kernel::Code;
use node_proto::contract::RenewRequest;

use super::world::{World, code, csr, reason};

#[tokio::test]
async fn a_removed_node_loses_its_work_its_certificates_and_its_tokens_and_is_deleted() {
    let world = World::new().await;
    let (node, token) = world.node("gpu-01").await;
    world.enroll(&node, &token).await.unwrap();
    world.onboarding_begin(node.id).await;
    let mut tx = world.write("node.repair_token").await;
    node_repair_token(&world.fleet, &mut tx, node.id).await.unwrap();
    tx.commit(None).await.unwrap();
    let mut tx = world.write("node.remove").await;
    node_remove(&world.fleet, &mut tx, node.id, &reason("a mistake"), None).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(world.state(node.id).await, "removing");
    assert_eq!(world.count("SELECT count(*) FROM node_tasks WHERE state <> 'cancelled'").await, 0);
    assert_eq!(world.count("SELECT count(*) FROM node_certificates WHERE revoked_at IS NULL").await, 0);
    assert_eq!(
        world.count("SELECT count(*) FROM node_tokens WHERE used_at IS NULL AND revoked_at IS NULL").await,
        0
    );
    let renewed = renew(
        &world.fleet,
        node.id,
        &world.serial(node.id).await,
        &RenewRequest { csr_pem: csr() },
        &world.origin(),
    )
    .await;
    assert_eq!(code(renewed.map(|_| ())), Some(Code::TokenRevoked));
    let turns = tokio::join!(nodes_delete(&world.fleet, 10), nodes_delete(&world.fleet, 10));
    assert_eq!(turns.0.unwrap() + turns.1.unwrap(), 1);
    assert_eq!(world.state(node.id).await, "deleted");
    assert!(world.count("SELECT count(*) FROM node_history").await >= 3, "its history stays");
    let (again, _) = world.node("gpu-01").await;
    assert_ne!(again.id, node.id, "the name is free again");
}

#[tokio::test]
async fn a_node_that_serves_is_drained_and_retired_before_it_is_removed() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    let mut tx = world.write("node.remove").await;
    let refused = node_remove(&world.fleet, &mut tx, node.id, &reason("too soon"), None).await;
    assert_eq!(code(refused), Some(Code::InvalidTransition));
    tx.roll_back().await;
    let mut tx = world.write("node.drain").await;
    let stale = node_drain(&world.fleet, &mut tx, node.id, &reason("old iron"), Some(1)).await;
    assert_eq!(code(stale), Some(Code::Conflict));
    tx.roll_back().await;
    let mut tx = world.write("node.drain").await;
    node_drain(&world.fleet, &mut tx, node.id, &reason("old iron"), None).await.unwrap();
    tx.commit(None).await.unwrap();
    let queued = world.tasks_lease(node.id).await;
    assert_eq!(
        queued.iter().map(|task| task.task_type.as_str()).collect::<Vec<_>>(),
        ["node.drain"],
        "with the state, the task"
    );
    world.tamper("UPDATE node_resource_slots SET state = 'in_use'").await;
    let mut tx = world.write("node.retire").await;
    assert_eq!(
        code(node_retire(&world.fleet, &mut tx, node.id, &reason("old iron"), None).await),
        Some(Code::InUse)
    );
    tx.roll_back().await;
    world.tamper("UPDATE node_resource_slots SET state = 'available'").await;
    let mut tx = world.write("node.retire").await;
    node_retire(&world.fleet, &mut tx, node.id, &reason("old iron"), None).await.unwrap();
    node_remove(&world.fleet, &mut tx, node.id, &reason("old iron"), None).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(nodes_delete(&world.fleet, 10).await.unwrap(), 1);
}

#[tokio::test]
async fn a_node_with_work_left_is_not_deleted() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    world.onboarding_begin(node.id).await;
    world.transition(node.id, NodeEvent::Remove).await.unwrap();
    assert_eq!(nodes_delete(&world.fleet, 10).await.unwrap(), 0);
    assert_eq!(world.state(node.id).await, "removing");
}

#[tokio::test]
async fn tokens_certificates_and_tasks_are_forgotten_long_after_their_end() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    world.onboarding_begin(node.id).await;
    world.onboarding_begin(world.enrolled("gpu-02").await.id).await;
    world
        .sql(
            "DELETE FROM node_certificates WHERE node_id IN (SELECT id FROM nodes WHERE hostname = 'gpu-02')",
        )
        .await;
    world
        .sql("DELETE FROM node_tokens WHERE node_id IN (SELECT id FROM nodes WHERE hostname = 'gpu-02')")
        .await;
    world.answer(node.id, super::world::succeeded(&super::world::topology(1, 0))).await;
    world.pass(TimeDelta::days(20));
    assert_eq!(tidy(&world.fleet, 100).await.unwrap(), 0);
    world.pass(TimeDelta::days(20));
    assert_eq!(tidy(&world.fleet, 100).await.unwrap(), 1, "the token");
    world.pass(TimeDelta::days(60));
    assert_eq!(tidy(&world.fleet, 100).await.unwrap(), 2, "the certificate and the task that ended");
    assert_eq!(world.count("SELECT count(*) FROM node_tasks").await, 1, "not the one that is open");
}
