//! Attacks on the node listener and on what stands behind it: each is refused, and each is in the audit trail.

mod bodies;
pub mod certificates;
mod findings;
mod tasks;
mod tokens;
mod tunnels;

use serde_json::{Value, json};
use testkit::{NodeClient, World};

/// How many refusals of this action stand in the trail.
pub async fn refusals(world: &World, action: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM audit_logs WHERE action = '{action}' AND result = 'refused'");
    world.count(&sql).await
}

pub async fn node(world: &World, hostname: &str) -> NodeClient {
    world.enrolled_node(&world.created_node(hostname).await).await
}

/// Lets the node do its discovery and answers everything that waits, so that the queue is empty.
pub async fn drain_queue(node: &NodeClient) {
    loop {
        let tasks = node.wait(1, "").await;
        if tasks.is_empty() {
            return;
        }
        for task in tasks {
            let id = payload(&task)["task_id"].as_str().unwrap().to_owned();
            let failed = json!({ "ending": { "status": "failed", "failure": { "code": "unavailable", "message": "not now" } } });
            node.api.post(&node.path(&format!("tasks/{id}/result")), failed).await.expect(200);
        }
    }
}

pub fn payload(task: &Value) -> Value {
    use base64::Engine as _;
    let bytes =
        base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(task["payload"].as_str().unwrap()).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}
