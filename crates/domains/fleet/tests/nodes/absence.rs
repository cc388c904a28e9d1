use chrono::TimeDelta;
use fleet::{jobs::offline::nodes_lose_contact, service::contacts::regained};

use crate::world::World;

const LONG_AGO: TimeDelta = TimeDelta::days(1);

#[tokio::test]
async fn a_silent_node_is_offline_and_nothing_of_its_work_is_touched() {
    let world = World::new().await;
    let node = world.active("gpu-01", 2).await;
    let away = world.active("gpu-02", 2).await;
    world.tamper("UPDATE node_resource_slots SET state = 'in_use'").await;
    world.heard(node.id).await;
    world.heard(away.id).await;
    let mut tx = world.write("node.discover").await;
    fleet::service::onboarding::node_discover(&world.fleet, &mut tx, away.id).await.unwrap();
    tx.commit(None).await.unwrap();
    let work = "SELECT coalesce(sum(version), 0)::bigint FROM (SELECT version FROM node_tasks UNION ALL SELECT version FROM node_resource_slots) AS work";
    let before = world.count(work).await;
    let started = world.now() - LONG_AGO;
    world.pass(TimeDelta::seconds(29));
    world.heard(node.id).await;
    assert_eq!(nodes_lose_contact(&world.fleet, started, 10).await.unwrap(), 0, "not yet");
    world.pass(TimeDelta::seconds(2));
    let turns = tokio::join!(
        nodes_lose_contact(&world.fleet, started, 10),
        nodes_lose_contact(&world.fleet, started, 10)
    );
    assert_eq!(turns.0.unwrap() + turns.1.unwrap(), 1, "two replicas, one step");
    assert_eq!(
        (world.state(node.id).await, world.state(away.id).await),
        ("active".to_owned(), "offline".to_owned())
    );
    assert_eq!(world.detail(away.id).await.contact_state, "late");
    assert_eq!(world.count(work).await, before);
    world.heard(away.id).await;
    regained(&world.fleet, &[away.id, node.id]).await;
    assert_eq!(world.state(away.id).await, "active");
    assert_eq!(world.count(work).await, before, "nor when it is back");
    assert_eq!(
        (world.events("nodes.offline").await.len(), world.events("nodes.recovered").await.len()),
        (1, 1)
    );
}

#[tokio::test]
async fn a_control_plane_that_was_down_does_not_blame_the_nodes() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    world.heard(node.id).await;
    world.pass(TimeDelta::hours(2));
    let started = world.now();
    assert_eq!(nodes_lose_contact(&world.fleet, started, 10).await.unwrap(), 0);
    world.pass(TimeDelta::seconds(29));
    assert_eq!(nodes_lose_contact(&world.fleet, started, 10).await.unwrap(), 0);
    world.pass(TimeDelta::seconds(2));
    assert_eq!(nodes_lose_contact(&world.fleet, started, 10).await.unwrap(), 1);
}

#[tokio::test]
async fn only_active_nodes_go_offline() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    world.heard(node.id).await;
    world.pass(TimeDelta::hours(1));
    for state in ["enrolling", "quarantined", "draining", "retired", "removing", "deleted", "offline"] {
        world.tamper(&format!("UPDATE nodes SET state = '{state}'")).await;
        assert_eq!(nodes_lose_contact(&world.fleet, world.now() - LONG_AGO, 10).await.unwrap(), 0, "{state}");
    }
}
