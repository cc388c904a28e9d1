//! The frozen sides understand each other: when one of them fails against the current other, the other is to blame.

use chrono::TimeDelta;
use node_contract_1_1::{
    agent::Agent,
    gateway::Gateway,
    messages::{Ending, FailureCause, JoinInfo, RefusalReason},
};
use serde_json::{Value, json};

async fn world() -> (Gateway, JoinInfo, String, Agent) {
    let gateway = Gateway::start(TimeDelta::days(1)).await;
    let (join, token) = gateway.created_node("gpu-1");
    let agent = Agent::enroll(join.clone(), &token).await.unwrap();
    (gateway, join, token, agent)
}

fn user(more: Value) -> Value {
    let mut input = json!({ "account": { "username": "u", "uid": 20_001, "gid": 20_001 }, "owner": "a",
        "shell": "/bin/sh", "authorized_keys": [] });
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    input
}

#[tokio::test]
async fn an_agent_of_1_1_works_at_a_gateway_of_1_1() {
    let (gateway, join, token, mut agent) = world().await;
    let node = join.node_id.clone();
    let refused = Agent::enroll(join, &token).await.err().unwrap();
    assert_eq!((refused.status, refused.code.as_str()), (401, "token_invalid"));

    let root = user(json!({ "sudo": true, "isolation": "full-reimage" }));
    let root = gateway.queue(&node, "allocation.provision_user", root);
    assert_eq!(agent.work(5).await, Ok(1));
    let drain = gateway.queue(&node, "node.drain", json!({ "reason": "test" }));
    assert_eq!(agent.work(5).await, Ok(1));
    let discover = gateway.queue(&node, "slice.topology_discover", json!({}));
    let odd = gateway.queue(&node, "node.drain", json!({ "reason": "test", "added": 1 }));
    let drained = gateway.queue(&node, "allocation.provision_user", user(json!({ "sudo": false })));
    let wrong = gateway.queue(&node, "allocation.provision_user", user(json!({ "sudo": true })));
    assert_eq!(agent.work(5).await, Ok(4));
    gateway.hand_out_again(&drain);
    assert_eq!(agent.work(5).await, Ok(1));
    assert_eq!(agent.heartbeat().await.unwrap().heartbeat_seconds, 1);
    assert_eq!(agent.log("a line").await.unwrap().lines, 1);

    let seen = gateway.seen();
    let ending = |task: &String| &seen.tasks[task].results[0].ending;
    assert!(matches!(ending(&discover), Ending::Succeeded { output } if output["hostname"] == "gpu-1"));
    assert!(matches!(ending(&root), Ending::Succeeded { output } if output["created"] == true));
    for task in [&odd, &wrong] {
        assert_eq!(ending(task), &Ending::Refused { reason: RefusalReason::BadParameters });
    }
    let Ending::Failed { failure } = ending(&drained) else { panic!("{:?}", ending(&drained)) };
    assert_eq!(failure.cause, Some(FailureCause::Drained));
    assert_eq!((seen.tasks[&drain].progress.len(), seen.tasks[&drain].results.len()), (1, 2));
    assert!(seen.heartbeats[0].inventory.drained);
    assert!(seen.heartbeats[0].clock_offset_ms.unwrap().abs() < 60_000);
    assert_eq!(seen.log_lines[0].message, "a line");
    assert_eq!(seen.unknown_paths, [""; 0]);
}

#[tokio::test]
async fn an_agent_of_1_1_follows_a_new_signer_and_makes_a_new_key_when_it_is_told_to() {
    let (gateway, join, _, mut agent) = world().await;
    let node = join.node_id;
    gateway.change_signer();
    assert_eq!((agent.heartbeat().await.unwrap().keyset_serial, agent.keyset.serial), (Some(2), 2));
    agent.heartbeat().await.unwrap();
    gateway.change_signer();
    gateway.queue(&node, "slice.topology_discover", json!({}));
    assert_eq!((agent.work(5).await, agent.keyset.serial), (Ok(1), 3));
    {
        let seen = gateway.seen();
        assert_eq!((seen.trust_asked, seen.heartbeats[1].keyset_serial), (2, Some(2)));
    }

    let before = agent.key_pem.clone();
    gateway.ask_for_new_key(&node);
    gateway.seen().lost_renewals = 1;
    assert_eq!(agent.work(5).await.unwrap_err().status, 503, "its answer is lost");
    assert_eq!((agent.wait(0).await.unwrap().renew_now, &agent.key_pem), (None, &before));
    agent.renew().await.unwrap();
    assert_ne!(agent.key_pem, before);
    gateway.ask_for_new_key(&node);
    assert_eq!(agent.heartbeat().await.unwrap().renew_now, Some(true));
    assert_eq!(agent.heartbeat().await.unwrap().renew_now, None);
    let keys = gateway.seen().keys.clone();
    assert!(keys.len() == 4 && keys[1] == keys[2] && keys[3] != keys[2], "kept until it counts: {keys:?}");
}

#[tokio::test]
async fn a_task_comes_back_to_an_agent_of_1_1_that_does_not_hold_it() {
    let (gateway, join, _, mut agent) = world().await;
    let task = gateway.queue(&join.node_id, "node.drain", json!({ "reason": "test" }));
    assert_eq!(agent.wait(5).await.unwrap().tasks.len(), 1);
    agent.holding.insert(task.clone());
    assert_eq!(agent.wait(3).await.unwrap().tasks.len(), 0, "it has it");
    agent.holding.clear();
    assert_eq!(agent.work(5).await, Ok(1), "it was lost on the way");
    assert_eq!(agent.wait(3).await.unwrap().tasks.len(), 0, "it is done");
    assert_eq!(gateway.seen().tasks[&task].deliveries, 2);
}

#[tokio::test]
async fn an_agent_of_1_1_fetches_a_program_and_takes_it_only_as_announced() {
    let (gateway, join, _, mut agent) = world().await;
    let program = b"another program".to_vec();
    let sha256 = gateway.offer(program.clone());
    for (size_bytes, version) in [(1, "1.1.0"), (program.len(), "1.1.1")] {
        let input = json!({ "version": "1.1.1", "sha256": sha256, "size_bytes": size_bytes });
        gateway.queue(&join.node_id, "node.self_update", input);
        assert_eq!((agent.work(5).await, agent.version.as_str()), (Ok(1), version));
    }
    agent.heartbeat().await.unwrap();
    assert_eq!(gateway.seen().heartbeats[0].agent_version, "1.1.1");
}
