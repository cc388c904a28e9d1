//! An agent of 1.0 at the control plane of today: it joins, is onboarded, reports, renews and follows a rotation.

use node_contract_1_0::{
    agent::Agent,
    messages::{Ending, SignedTask},
};
use serde_json::{Value, json};
use testkit::{World, eventually, eventually_within};

async fn enrolled(world: &World, hostname: &str) -> Agent {
    let node = world.created_node(hostname).await;
    let join = serde_json::from_value(node.join.clone()).expect("what 1.0 pinned");
    Agent::enroll(join, &node.token).await.expect("a node of 1.0 is let in")
}

impl Node<'_> {
    fn path(&self, rest: &str) -> String {
        format!("/api/v1/platform/nodes/{}{rest}", self.agent.join.node_id)
    }

    async fn shown(&self) -> Value {
        self.world.admin.get(&self.path("")).await.expect(200)
    }

    async fn ask(&self, verb: &str, body: Value) -> Value {
        let answer = self.world.admin.post(&self.path(verb), body).await;
        assert!(answer.status < 300, "{}", answer.text);
        answer.body
    }

    /// Does the next task and gives how it ended.
    async fn work(&mut self) -> Ending {
        let done = self.agent.done.len();
        for _ in 0..20 {
            if self.agent.work(2).await.expect("an answer") > 0 {
                break;
            }
        }
        assert_eq!(self.agent.done.len(), done + 1, "one task more");
        self.agent.done.last_key_value().expect("a result").1.ending.clone()
    }

    /// From enrolled to active.
    async fn onboard(&mut self) {
        assert!(matches!(self.work().await, Ending::Succeeded { .. }), "the discovery");
        let slots = self.world.admin.get(&self.path("/slots")).await.expect(200);
        assert_eq!(slots["items"].as_array().map(Vec::len), Some(2), "{slots}");
        self.ask("/slots/approve", json!({ "all_ready": true })).await;
        assert!(matches!(self.work().await, Ending::Succeeded { .. }), "the probe");
        let id = self.agent.join.node_id.clone();
        eventually("the node is active", || async {
            (self.world.node_state(&id).await == "active").then_some(())
        })
        .await;
    }
}

struct Node<'a> {
    world: &'a World,
    agent: Agent,
}

fn id(task: &SignedTask) -> String {
    let task: Value = serde_json::from_slice(&task.payload.0).expect("JSON");
    task["task_id"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_1_0_is_onboarded_reports_renews_and_follows_a_new_signer() {
    let world = World::start().await;
    let agent = enrolled(&world, "old-1").await;
    let mut node = Node { world: &world, agent };
    node.onboard().await;

    // Its report says nothing of trust and clock, and counts.
    node.agent.heartbeat().await.expect("a report is taken");
    let contact = eventually("the report is shown", || async {
        let contact = node.shown().await["contact"].clone();
        contact.is_object().then_some(contact)
    })
    .await;
    assert_eq!(
        (contact["contract"].as_str(), contact["agent_version"].as_str()),
        (Some("1.0"), Some("1.0.0"))
    );

    let before = node.agent.certificate.chain_pem.clone();
    node.agent.renew().await.expect("a certificate is renewed");
    assert_ne!(node.agent.certificate.chain_pem, before);
    node.agent.heartbeat().await.expect("the new certificate counts");
    let listed = world.admin.get(&node.path("/certificates")).await.expect(200);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2), "{listed}");

    // It cannot confirm the new signer, so somebody must insist; it learns of it from the first task.
    let staged = world.admin.post("/api/v1/platform/trust/signers", json!({})).await.expect(201);
    let activate = format!("/api/v1/platform/trust/signers/{}/activate", staged["signer_version"]);
    let serial = node.agent.keyset.serial;
    let refused = world.admin.post(&activate, json!({})).await;
    assert!(
        (400..500).contains(&refused.status),
        "a node that confirms nothing is not passed over: {}",
        refused.text
    );
    world.admin.post(&activate, json!({ "force": true, "reason": "nodes of 1.0" })).await.expect(200);
    node.ask("/drain", json!({ "reason": "test" })).await;
    assert!(matches!(node.work().await, Ending::Succeeded { .. }), "signed by the new signer");
    assert!(node.agent.drained && node.agent.keyset.serial > serial);
    let open = eventually("all its tasks are over", || async {
        let shown = node.shown().await;
        (shown["open_tasks"] == 0).then_some(shown)
    })
    .await;
    assert_eq!(open["state"], "draining");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_handed_out_twice_to_an_agent_that_does_not_say_what_it_holds() {
    let world = World::start().await;
    let lease = "/api/v1/platform/policies/fleet.task_lease_seconds";
    world.admin.put(lease, json!({ "value": 5 })).await.expect(200);
    let agent = enrolled(&world, "old-2").await;
    let mut node = Node { world: &world, agent };
    node.onboard().await;

    node.ask("/drain", json!({ "reason": "test" })).await;
    let handed =
        eventually("a task is handed out", || async { node.agent.wait(2).await.expect("an answer").pop() })
            .await;
    let task = id(&handed);
    let lapsed = "SELECT count(*) FROM node_tasks WHERE state = 'dispatched' AND lease_until < now()";
    let patience = std::time::Duration::from_secs(60);
    eventually_within(patience, "its lease lapses", || async {
        (world.count(lapsed).await == 1).then_some(())
    })
    .await;
    assert!(node.agent.wait(2).await.expect("an answer").is_empty());
    let deliveries = "SELECT sum(deliveries)::int8 FROM node_tasks WHERE task_type = 'node.drain'";
    assert_eq!(world.count(deliveries).await, 1);

    // An agent of today that says it holds nothing would get it; so would this one after its update.
    let (chain, key) = (&node.agent.certificate.chain_pem, &node.agent.key_pem);
    let updated = world.node_client(&node.agent.join.node_id, chain, key).await;
    let again = updated.wait(2, "").await;
    assert_eq!(again.len(), 1);
    assert_eq!(serde_json::to_value(&handed).expect("JSON"), again[0]);

    // It had the task all the time, and does it once.
    assert!(node.agent.follow(&handed).await.expect("its result is heard").counted);
    let shown = world.admin.get(&format!("/api/v1/platform/tasks/{task}")).await.expect(200);
    assert_eq!(shown["state"], "succeeded");
    assert!(node.agent.wait(1).await.expect("an answer").is_empty());
}
