//! The life of a node with the real agent: joined, looked over, approved, proven, drained, lost and found again.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{NODE_SECRET, World, eventually};

async fn slots(world: &World, node: &str) -> Vec<Value> {
    let listed = world.admin.get(&format!("/api/v1/platform/nodes/{node}/slots")).await.expect(200);
    listed["items"].as_array().unwrap().clone()
}

async fn log_lines(world: &World, node: &str) -> String {
    let tail = world.admin.get(&format!("/api/v1/platform/nodes/{node}/logs?limit=1000")).await.expect(200);
    let lines = tail["items"].as_array().unwrap().iter();
    lines
        .map(|line| format!("{}: {}\n", line["source"].as_str().unwrap(), line["message"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn a_machine_becomes_a_node_that_serves_and_says_how_it_is() {
    let world = World::start().await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    let mut machine = world.machine("gpu-01").await;
    let id = machine.id().to_owned();
    let (well, said) = machine.agent.run_command(&["doctor"]);
    assert!(!well && said.contains("run `gpuaas-agent enroll`"), "{said}");
    let (ran, said) = machine.agent.run_command(&["run"]);
    assert!(!ran && said.contains("enroll"), "{said}");

    // A wrong root, then a wrong token, then the right ones: only the last joins.
    let mut foreign = machine.node.join.clone();
    foreign["root_sha256"] = json!(["00".repeat(32)]);
    let (joined, said) = machine.agent.join("enroll", &foreign, &machine.node.token);
    assert!(!joined, "{said}");
    let (joined, said) = machine.agent.join("enroll", &machine.node.join, "gpuaas_nbt_guessed");
    assert!(!joined && said.contains("new token"), "{said}");
    assert_eq!(world.node_state(&id).await, "bootstrap_issued");
    let (joined, said) = machine.agent.join("enroll", &machine.node.join, &machine.node.token);
    assert!(joined && said.contains(&id) && !said.contains(&machine.node.token), "{said}");
    assert_eq!(world.node_state(&id).await, "enrolling");

    machine.agent.start();
    world.awaits_approval(&machine).await;
    let found = slots(&world, &id).await;
    let ready = |slot: &&Value| slot["blockers"].as_array().unwrap().is_empty();
    let (free, held): (Vec<&Value>, Vec<&Value>) = found.iter().partition(ready);
    assert_eq!((free.len(), held.len()), (1, 1), "{found:?}");
    assert_eq!((&free[0]["pci_address"], &free[0]["state"]), (&json!("0000:1b:00.0"), &json!("discovered")));
    assert_eq!(held[0]["blockers"][0]["code"], "driver_bound");
    let approve = format!("/api/v1/platform/nodes/{id}/slots/approve");
    world.admin.post(&approve, json!({ "slot_ids": [held[0]["id"]] })).await.refused(422, "unprocessable");
    world.activate(&machine).await;
    let evidence = world.admin.get(&format!("/api/v1/platform/nodes/{id}/validations")).await.expect(200);
    assert_eq!((&evidence["items"][0]["passed"], machine.effects()), (&json!(true), 1), "{evidence}");
    let after = slots(&world, &id).await;
    let state_of =
        |address: &str| after.iter().find(|slot| slot["pci_address"] == address).unwrap()["state"].clone();
    assert_eq!(
        (state_of("0000:1b:00.0"), state_of("0000:3b:00.0")),
        (json!("available"), json!("discovered"))
    );

    // Reports.
    let node = eventually("the node reports what it is", || async {
        let node = world.node(&id).await;
        (node["contact"]["metrics"]["gpus"][0]["pci_address"] == "0000:3b:00.0").then_some(node)
    })
    .await;
    let contact = &node["contact"];
    assert_eq!(node["contact_state"], "current");
    assert_eq!(contact["agent_version"], machine.agent.run_command(&["version"]).1.trim());
    let certificates =
        world.admin.get(&format!("/api/v1/platform/nodes/{id}/certificates")).await.expect(200);
    let seconds = |time: &Value| time.as_str().unwrap().chars().take(19).collect::<String>();
    assert_eq!(seconds(&contact["certificate_expires_at"]), seconds(&certificates["items"][0]["not_after"]));
    let seen = contact["last_seen_at"].clone();
    eventually("it is heard of again", || async {
        (world.node(&id).await["contact"]["last_seen_at"] != seen).then_some(())
    })
    .await;
    let (well, said) = machine.agent.run_command(&["doctor"]);
    assert!(well && said.contains("responds and trusts this node"), "{said}");

    // Its log and what it collects arrive without what is secret on it.
    let lines = eventually("the log arrives", || async {
        let lines = log_lines(&world, &id).await;
        lines.contains("program ran").then_some(lines)
    })
    .await;
    assert!(lines.contains("[redacted]") && lines.contains("in contact"), "{lines}");
    let collect = json!({ "parts": ["mounts", "memory"] });
    let task = world.admin.post(&format!("/api/v1/platform/nodes/{id}/collect"), collect).await.expect(202);
    let task = world.task_ended(task["id"].as_str().unwrap()).await;
    assert_eq!(task["state"], "succeeded", "{task}");
    assert!(task.to_string().contains("password=[redacted]"), "{task}");
    for text in [lines, task.to_string(), world.server.log()] {
        assert!(!text.contains(NODE_SECRET) && !text.contains(&machine.node.token), "{text}");
    }

    drain_and_back(&world, &id).await;
    assert_eq!(machine.agent.stop().await, Some(0));
}

async fn drain_and_back(world: &World, id: &str) {
    let because = json!({ "reason": "maintenance" });
    for (verb, state, drained) in [("drain", "draining", true), ("undrain", "active", false)] {
        let path = format!("/api/v1/platform/nodes/{id}/{verb}");
        world.admin.post(&path, because.clone()).await.expect(202);
        assert_eq!(world.node_state(id).await, state);
        eventually("the node itself has taken it over", || async {
            (world.node(id).await["contact"]["inventory"]["drained"] == drained).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_node_that_is_silent_is_offline_and_back_with_its_next_report_and_nothing_of_it_is_touched() {
    let world = World::start().await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    let machine = world.active_machine("gpu-01").await;
    let id = machine.id().to_owned();
    machine.hold();
    let task = world.probe(&machine).await;
    world.task_is(&task, "running").await;
    let before = slots(&world, &id).await;

    // Stopped, not dead: the work that runs goes on.
    world.policy("fleet.offline_after_heartbeats", 2).await;
    machine.agent.signal(Signal::SIGSTOP);
    eventually("it is offline", || async { (world.node_state(&id).await == "offline").then_some(()) }).await;
    let node = world.node(&id).await;
    assert_eq!(node["contact_state"], "late", "{node}");
    assert!(node["state_reason"].as_str().unwrap().contains("no report"), "{node}");
    assert_eq!(world.task(&task).await["state"], "running");
    let waiting = world.probe(&machine).await;
    world.policy("fleet.offline_after_heartbeats", 20).await;
    machine.agent.signal(Signal::SIGCONT);
    eventually("it is back", || async { (world.node_state(&id).await == "active").then_some(()) }).await;
    machine.release();
    assert_eq!(world.task_ended(&task).await["state"], "succeeded");
    assert_eq!(world.task_ended(&waiting).await["state"], "succeeded");
    assert_eq!(machine.effects(), 3);
    let states = |slots: &[Value]| slots.iter().map(|slot| slot["state"].clone()).collect::<Vec<_>>();
    assert_eq!(states(&slots(&world, &id).await), states(&before));
    let history = world.admin.get(&format!("/api/v1/platform/nodes/{id}/history")).await.expect(200);
    let events: Vec<&str> =
        history["items"].as_array().unwrap().iter().filter_map(|e| e["event"].as_str()).collect();
    for event in ["enroll", "activate", "lose_contact", "regain_contact"] {
        assert!(events.contains(&event), "{events:?}");
    }

    // A second agent on the same state would be the end of "at most once".
    let (ran, said) = machine.agent.run_command(&["run"]);
    assert!(!ran && said.contains("another agent"), "{said}");
    world.server.signal(Signal::SIGSTOP);
    let (well, said) = machine.agent.run_command(&["doctor"]);
    world.server.signal(Signal::SIGCONT);
    assert!(!well && said.contains("FAIL  control plane"), "{said}");
}
