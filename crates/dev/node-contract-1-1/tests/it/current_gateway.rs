//! An agent of 1.1 at the control plane of today: it joins, is onboarded, reports, renews, follows a rotation and updates
//! itself.

use std::time::Duration;

use node_contract_1_1::{
    agent::Agent,
    messages::{Ending, SignedTask},
};
use serde_json::{Value, json};
use testkit::{World, eventually, eventually_within};

async fn enrolled(world: &World, hostname: &str) -> Agent {
    let node = world.created_node(hostname).await;
    let join = serde_json::from_value(node.join.clone()).expect("what 1.1 pinned");
    Agent::enroll(join, &node.token).await.expect("a node of 1.1 is let in")
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

    async fn certificates(&self) -> usize {
        let listed = self.world.admin.get(&self.path("/certificates")).await.expect(200);
        listed["items"].as_array().map(Vec::len).expect("certificates")
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
async fn an_agent_of_1_1_is_onboarded_reports_renews_and_follows_a_new_signer() {
    let world = World::start().await;
    let agent = enrolled(&world, "old-1").await;
    let mut node = Node { world: &world, agent };
    node.onboard().await;

    // Its report says which trust it has and how far its clock is off.
    node.agent.heartbeat().await.expect("a report is taken");
    let contact = eventually("the report is shown", || async {
        let contact = node.shown().await["contact"].clone();
        contact.is_object().then_some(contact)
    })
    .await;
    assert_eq!(
        (contact["contract"].as_str(), contact["agent_version"].as_str()),
        (Some("1.1"), Some("1.1.0"))
    );
    assert_eq!(contact["keyset_serial"], node.agent.keyset.serial);
    assert_eq!(contact["authority_ids"], json!(node.agent.authority_ids));
    assert!(contact["clock_offset_ms"].as_i64().is_some_and(|offset| offset.abs() < 60_000), "{contact}");
    assert_eq!(node.agent.log("a line of 1.1").await.expect("log lines are taken").lines, 1);

    // The answer to a renewal is lost: the key that it kept gets the same certificate.
    let before = node.agent.certificate.chain_pem.clone();
    let lost = node.agent.renewed().await.expect("a certificate is renewed").certificate;
    node.agent.renew().await.expect("it is given once more");
    assert_eq!(node.agent.certificate, lost);
    assert_ne!(node.agent.certificate.chain_pem, before);
    node.agent.heartbeat().await.expect("the new certificate counts");
    assert_eq!(node.certificates().await, 2);

    // It confirms the new signer, so nobody has to insist.
    let staged = world.admin.post("/api/v1/platform/trust/signers", json!({})).await.expect(201);
    let activate = format!("/api/v1/platform/trust/signers/{}/activate", staged["signer_version"]);
    let serial = node.agent.keyset.serial;
    let refused = world.admin.post(&activate, json!({})).await;
    assert!((400..500).contains(&refused.status), "it has not confirmed it yet: {}", refused.text);
    node.agent.heartbeat().await.expect("a report is taken");
    assert!(node.agent.keyset.serial > serial, "it heard of another list and asked for it");
    node.agent.heartbeat().await.expect("a report is taken");
    eventually("the new signer is confirmed", || async {
        (world.admin.post(&activate, json!({})).await.status == 200).then_some(())
    })
    .await;
    node.ask("/drain", json!({ "reason": "test" })).await;
    assert!(matches!(node.work().await, Ending::Succeeded { .. }), "signed by the new signer");
    assert!(node.agent.drained);
    let open = eventually("all its tasks are over", || async {
        let shown = node.shown().await;
        (shown["open_tasks"] == 0).then_some(shown)
    })
    .await;
    assert_eq!(open["state"], "draining");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_1_1_makes_a_new_key_when_it_is_told_to() {
    let world = World::start().await;
    let agent = enrolled(&world, "old-2").await;
    let mut node = Node { world: &world, agent };
    assert!(matches!(node.work().await, Ending::Succeeded { .. }), "the discovery");
    let uuid = node.agent.join.node_id.trim_start_matches("node_");
    // As after the end of a tenancy.
    let ask = format!(
        "UPDATE nodes SET rekey_since = greatest(now(), (SELECT max(created_at) + interval '1 microsecond'
             FROM node_certificates WHERE node_id = '{uuid}')) WHERE id = '{uuid}'"
    );
    let pause = || tokio::time::sleep(Duration::from_millis(100));
    let tell = async || world.db.sql("SELECT pg_notify('gpuaas_invalidate', '*')").await;
    for waits in [true, false] {
        node.agent.heartbeat().await.expect("it is heard");
        let (key, given) = (node.agent.key_pem.clone(), node.certificates().await);
        world.db.sql(&ask).await;
        let told = async {
            if waits {
                node.agent.work(20).await.expect("an answer");
            }
            while !waits && node.agent.key_pem == key {
                node.agent.heartbeat().await.expect("a report is taken");
                pause().await;
            }
        };
        let telling = async {
            loop {
                tell().await;
                pause().await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(Duration::from_secs(20), told) => {}
            () = telling => {}
        }
        assert_ne!(
            node.agent.key_pem,
            key,
            "told in an answer to a {}",
            if waits { "wait" } else { "report" }
        );
        assert_eq!(node.certificates().await, given + 1);
        node.agent.heartbeat().await.expect("the new key counts");
        let blockers = node.shown().await["blockers"].to_string();
        assert!(!blockers.contains("node_key"), "{blockers}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_handed_out_again_only_to_an_agent_that_says_it_does_not_hold_it() {
    let world = World::start().await;
    let lease = "/api/v1/platform/policies/fleet.task_lease_seconds";
    world.admin.put(lease, json!({ "value": 5 })).await.expect(200);
    let agent = enrolled(&world, "old-3").await;
    let mut node = Node { world: &world, agent };
    node.onboard().await;

    node.ask("/drain", json!({ "reason": "test" })).await;
    let handed = eventually("a task is handed out", || async {
        node.agent.wait(2).await.expect("an answer").tasks.pop()
    })
    .await;
    let task = id(&handed);
    let lapsed = "SELECT count(*) FROM node_tasks WHERE state = 'dispatched' AND lease_until < now()";
    let patience = Duration::from_secs(60);
    eventually_within(patience, "its lease lapses", || async {
        (world.count(lapsed).await == 1).then_some(())
    })
    .await;
    let deliveries = "SELECT sum(deliveries)::int8 FROM node_tasks WHERE task_type = 'node.drain'";
    // The list is optional: who says nothing gets nothing twice.
    let (chain, key) = (&node.agent.certificate.chain_pem, &node.agent.key_pem);
    let silent = world.node_client(&node.agent.join.node_id, chain, key).await;
    let answer = silent.api.get(&silent.path("tasks/wait?seconds=2&room=4")).await.expect(200);
    assert_eq!(answer["tasks"], json!([]));
    node.agent.holding.insert(task.clone());
    assert!(node.agent.wait(2).await.expect("an answer").tasks.is_empty(), "it has it");
    assert_eq!(world.count(deliveries).await, 1);

    node.agent.holding.clear();
    let again = node.agent.wait(2).await.expect("an answer").tasks;
    assert_eq!(again, std::slice::from_ref(&handed), "it was lost on the way");
    assert_eq!(world.count(deliveries).await, 2);

    // Both arrived in the end, and it is done once.
    assert!(node.agent.follow(&handed).await.expect("its result is heard").counted);
    let shown = world.admin.get(&format!("/api/v1/platform/tasks/{task}")).await.expect(200);
    assert_eq!(shown["state"], "succeeded");
    assert!(node.agent.wait(1).await.expect("an answer").tasks.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_1_1_fetches_the_program_that_it_is_to_become() {
    let world = World::start().await;
    let agent = enrolled(&world, "old-4").await;
    let mut node = Node { world: &world, agent };
    node.onboard().await;
    let programs = world.server.dir.path().join("data/programs");
    std::fs::create_dir_all(&programs).expect("a directory");
    let name = format!("gpuaas-agent-9.9.9-{}", std::env::consts::ARCH);
    std::fs::write(programs.join(name), "a newer agent").expect("a program");
    let offered = world.admin.get("/api/v1/platform/agent-programs").await.expect(200);
    node.ask("/agent-update", json!({ "sha256": offered["items"][0]["sha256"] })).await;
    let ending = node.work().await;
    assert!(matches!(&ending, Ending::Succeeded { output } if output["to_version"] == "9.9.9"), "{ending:?}");
    node.agent.heartbeat().await.expect("a report is taken");
    eventually("its version is shown", || async {
        (node.shown().await["contact"]["agent_version"] == "9.9.9").then_some(())
    })
    .await;
}
