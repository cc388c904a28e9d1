use chrono::TimeDelta;
use fleet::{
    model::node::{NodeEvent, NodeState},
    service::{
        certificates::node_certificate_revoke,
        node_trust::{NodeTrust, NodeTrustCache, Worth},
    },
};

use super::world::{World, reason};

#[tokio::test]
async fn a_change_of_state_and_a_revocation_are_seen_at_once() {
    let world = World::new().await;
    let node_trust = NodeTrustCache::new(&world.test.db);
    let (node, token) = world.node("gpu-01").await;
    let state = async || node_trust.get(node.id).await.unwrap().unwrap().state;
    assert_eq!(state().await, NodeState::BootstrapIssued);
    world.enroll(&node, &token).await.unwrap();
    assert_eq!(state().await, NodeState::Enrolling);
    let mut tx = world.write("node.certificate_revoke").await;
    let revoked = node_certificate_revoke(&mut tx, node.id, None, &reason("stolen")).await.unwrap();
    let worth = |standing: &NodeTrust| standing.worth(&revoked[0].serial);
    assert!(worth(&node_trust.get(node.id).await.unwrap().unwrap()) != Worth::Revoked, "not yet committed");
    tx.commit(None).await.unwrap();
    assert_eq!(worth(&node_trust.get(node.id).await.unwrap().unwrap()), Worth::Revoked);
    world.transition(node.id, NodeEvent::Remove).await.unwrap();
    assert_eq!(state().await, NodeState::Removing);
    assert!(node_trust.get(world.test.db.ambient().id()).await.unwrap().is_none());
}

#[tokio::test]
async fn what_nobody_announced_is_believed_for_ten_seconds_at_most() {
    let world = World::new().await;
    let node_trust = NodeTrustCache::new(&world.test.db);
    let (node, _) = world.node("gpu-01").await;
    assert_eq!(node_trust.get(node.id).await.unwrap().unwrap().state, NodeState::BootstrapIssued);
    world.tamper("UPDATE nodes SET state = 'removing'").await;
    world.pass(TimeDelta::seconds(9));
    assert_eq!(node_trust.get(node.id).await.unwrap().unwrap().state, NodeState::BootstrapIssued);
    world.pass(TimeDelta::seconds(1));
    assert_eq!(node_trust.get(node.id).await.unwrap().unwrap().state, NodeState::Removing);
}
