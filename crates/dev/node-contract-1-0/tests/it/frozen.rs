//! The frozen sides understand each other: when one of them fails against the current other, the other is to blame.

use chrono::TimeDelta;
use node_contract_1_0::{
    agent::Agent,
    gateway::Gateway,
    messages::{Ending, RefusalReason},
};
use serde_json::json;

#[tokio::test]
async fn an_agent_of_1_0_works_at_a_gateway_of_1_0() {
    let gateway = Gateway::start(TimeDelta::days(1)).await;
    let (join, token) = gateway.created_node("gpu-1");
    let node = join.node_id.clone();
    let mut agent = Agent::enroll(join.clone(), &token).await.unwrap();
    let refused = Agent::enroll(join, &token).await.err().unwrap();
    assert_eq!((refused.status, refused.code.as_str()), (401, "token_invalid"));

    let drain = gateway.queue(&node, "node.drain", json!({ "reason": "test" }));
    let discover = gateway.queue(&node, "slice.topology_discover", json!({}));
    let odd = gateway.queue(&node, "node.drain", json!({ "reason": "test", "added": 1 }));
    assert_eq!(agent.work(5).await, Ok(3));
    gateway.hand_out_again(&drain);
    assert_eq!(agent.work(5).await, Ok(1));
    agent.renew().await.unwrap();
    assert_eq!(agent.heartbeat().await.unwrap().heartbeat_seconds, 1);

    let seen = gateway.seen();
    let ending = |task: &String| &seen.tasks[task].results[0].ending;
    assert!(matches!(ending(&discover), Ending::Succeeded { output } if output["hostname"] == "gpu-1"));
    assert_eq!(ending(&odd), &Ending::Refused { reason: RefusalReason::BadParameters });
    assert_eq!((seen.tasks[&drain].progress.len(), seen.tasks[&drain].results.len()), (1, 2));
    assert!(seen.heartbeats[0].inventory.drained);
}
