//! The node listener as nodes meet it: a real server, real certificates, real long polls.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{NodeClient, World, eventually};

/// A node that nothing waits for: whatever was queued for it by itself is over.
async fn quiet_node(world: &World, hostname: &str) -> NodeClient {
    let created = world.created_node(hostname).await;
    let node = world.enrolled_node(&created).await;
    for task in node.wait(10, "").await {
        let id = task_id(&task);
        let failure = json!({ "code": "unavailable", "message": "not now" });
        let told = json!({ "ending": { "status": "failed", "failure": failure } });
        node.api.post(&node.path(&format!("tasks/{id}/result")), told).await.expect(200);
    }
    node
}

fn task_id(signed: &Value) -> String {
    let signed: node_proto::SignedTask = serde_json::from_value(signed.clone()).unwrap();
    let task: node_proto::Task = serde_json::from_slice(&signed.payload.0).unwrap();
    task.task_id.to_string()
}

/// Has an operator ask the node for something harmless.
async fn ask_for_diagnostics(world: &World, node: &NodeClient) -> String {
    let path = format!("/api/v1/platform/nodes/{}/collect", node.id);
    let queued = world.admin.post(&path, json!({ "parts": ["memory"] })).await.expect(202);
    queued["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_waiting_node_is_woken_at_once_and_tells_how_it_went() {
    let world = World::start().await;
    let node = quiet_node(&world, "n1").await;
    let waiting = tokio::spawn({
        let node = node.clone();
        async move { (node.wait(30, "").await, Instant::now()) }
    });
    node_waits(&world).await;
    let asked = Instant::now();
    let task = ask_for_diagnostics(&world, &node).await;
    let (tasks, answered) = waiting.await.unwrap();
    assert_eq!(tasks.iter().map(task_id).collect::<Vec<_>>(), [task.as_str()]);
    assert!(answered - asked < Duration::from_secs(2), "{:?}", answered - asked);

    let path = |rest: &str| node.path(&format!("tasks/{task}/{rest}"));
    let progress = node.api.post(&path("progress"), json!({ "phases": [] })).await.expect(200);
    assert_eq!(progress["cancelled"], false);
    let output = json!({ "parts": [{ "part": "memory", "text": "plenty\u{0}", "truncated": false }] });
    let told = json!({ "ending": { "status": "succeeded", "output": output }, "phases": [] });
    for _ in 0..2 {
        let answer = node.api.post(&path("result"), told.clone()).await.expect(200);
        assert_eq!(answer["counted"], true);
    }
    let other = json!({ "ending": { "status": "refused", "reason": "expired" } });
    assert_eq!(node.api.post(&path("result"), other).await.status, 409);
    let shown = world.admin.get(&format!("/api/v1/platform/tasks/{task}")).await.expect(200);
    assert_eq!((&shown["state"], &shown["outcome"]["status"]), (&json!("succeeded"), &json!("succeeded")));
    assert_eq!(
        world
            .count("SELECT count(*) FROM audit_logs WHERE action = 'task.result' AND result = 'refused'")
            .await,
        1
    );
}

#[tokio::test]
async fn a_node_without_room_waits_and_is_given_nothing() {
    let world = World::start().await;
    let node = quiet_node(&world, "n1").await;
    let waiting = tokio::spawn({
        let (api, path) = (node.api.clone(), node.path("tasks/wait?seconds=30&room=0&holding="));
        async move { api.get(&path).await.expect(200)["tasks"].clone() }
    });
    node_waits(&world).await;
    let task = ask_for_diagnostics(&world, &node).await;
    // Its next wait takes the place of this one.
    let tasks = node.wait(10, "").await;
    assert_eq!(tasks.iter().map(task_id).collect::<Vec<_>>(), [task.as_str()]);
    assert_eq!(waiting.await.unwrap(), json!([]));
}

/// Until one node waits for tasks; the listener says so.
async fn node_waits(world: &World) {
    eventually("a node waits", || async {
        let metrics = testkit::Api::new(&world.server.ops, None).get("/metrics").await.text;
        metrics.lines().any(|line| line.starts_with("node_waiting") && line.ends_with(" 1")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_second_wait_takes_the_place_of_the_first_and_a_stop_ends_both_empty() {
    let mut world = World::start().await;
    let node = quiet_node(&world, "n1").await;
    let spawn = |node: &NodeClient| {
        let node = node.clone();
        tokio::spawn(async move { node.wait(30, "").await })
    };
    let first = spawn(&node);
    node_waits(&world).await;
    let began = Instant::now();
    let second = spawn(&node);
    assert!(first.await.unwrap().is_empty());
    assert!(began.elapsed() < Duration::from_secs(10));
    let began = Instant::now();
    assert_eq!(world.server.stop().await, Some(0));
    assert!(second.await.unwrap().is_empty());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test]
async fn strangers_others_and_revoked_nodes_are_refused_and_audited() {
    let world = World::start().await;
    let (one, two) = (quiet_node(&world, "n1").await, quiet_node(&world, "n2").await);
    let heartbeat = NodeClient::heartbeat();
    let stranger = world.node_listener().await;
    assert_eq!(stranger.post(&one.path("heartbeat"), heartbeat.clone()).await.status, 401);
    assert_eq!(one.api.post(&two.path("heartbeat"), heartbeat.clone()).await.status, 403);
    assert_eq!(one.api.post(&one.path("heartbeat"), heartbeat.clone()).await.status, 200);
    let refusals =
        "SELECT count(*) FROM audit_logs WHERE action = 'node.authenticate' AND result = 'refused'";
    assert_eq!(world.count(refusals).await, 2);

    // A long poll of a node that is revoked meanwhile ends with the refusal.
    let waiting = tokio::spawn({
        let (api, path) = (one.api.clone(), one.path("tasks/wait?seconds=30"));
        async move { api.get(&path).await.status }
    });
    node_waits(&world).await;
    let revoked = world
        .admin
        .post(&format!("/api/v1/platform/nodes/{}/certificates/revoke", one.id), json!({ "reason": "lost" }))
        .await;
    assert!(revoked.status < 300, "{}", revoked.text);
    assert_eq!(waiting.await.unwrap(), 401);
    assert_eq!(one.api.post(&one.path("heartbeat"), heartbeat.clone()).await.status, 401);
    assert_eq!(two.api.post(&two.path("heartbeat"), heartbeat).await.status, 200);
}

#[tokio::test]
async fn reports_are_kept_and_answered_with_what_is_in_force() {
    let world = World::start().await;
    let node = quiet_node(&world, "n1").await;
    let answer = node.api.post(&node.path("heartbeat"), NodeClient::heartbeat()).await.expect(200);
    assert_eq!((&answer["heartbeat_seconds"], &answer["desired_version"]), (&json!(10), &json!(0)));
    let trust = node.api.get(&node.path("trust")).await.expect(200);
    assert_eq!(answer["authority_ids"][0], trust["authorities"][0]["id"]);
    assert!(answer["keyset_serial"].as_u64().is_some_and(|serial| serial > 0));
    eventually("the report is written", || async {
        (world.count("SELECT count(*) FROM node_contacts WHERE agent_version = '0.0.1'").await == 1)
            .then_some(())
    })
    .await;

    let line = |message: &str| json!({ "at": "2026-01-02T03:04:05Z", "level": "info", "source": "agent", "message": message });
    let path = format!("/api/v1/platform/nodes/{}/logs", node.id);
    let empty = world.admin.get(&path).await.expect(200);
    let follow = tokio::spawn({
        let (admin, path) = (world.admin.clone(), format!("{path}?after={}&wait=20s", empty["next_after"]));
        async move { admin.get(&path).await.expect(200) }
    });
    node.api.post(&node.path("logs"), json!({ "lines": [line("a\u{0}b"), line("c")] })).await.expect(200);
    let followed = follow.await.unwrap();
    let messages: Vec<&str> =
        followed["items"].as_array().unwrap().iter().filter_map(|l| l["message"].as_str()).collect();
    assert_eq!(messages, ["a\u{fffd}b", "c"]);
    assert_eq!(
        world.admin.get(&format!("{path}?after={}", followed["next_after"])).await.expect(200)["items"],
        json!([])
    );
}

/// A node that reports without end, or somebody with its key, gets its share and no more; another node notices nothing.
#[tokio::test]
async fn reports_and_log_batches_of_one_node_are_limited() {
    let world = World::start().await;
    let (one, two) = (quiet_node(&world, "n1").await, quiet_node(&world, "n2").await);
    for key in ["fleet.heartbeats_per_minute", "fleet.log_batches_per_minute"] {
        let path = format!("/api/v1/platform/policies/{key}");
        world.admin.put(&path, json!({ "value": 60 })).await.expect(200);
    }
    let batch = json!({ "lines": [] });
    for (path, body) in [("heartbeat", NodeClient::heartbeat()), ("logs", batch)] {
        // The count begins anew each minute, so more than twice the limit is over it in any case.
        let mut refused = None;
        for _ in 0..125 {
            let answer = one.api.post(&one.path(path), body.clone()).await;
            if answer.status != 200 {
                refused = Some(answer);
                break;
            }
        }
        let refused = refused.expect("one node is limited");
        assert_eq!(refused.status, 429, "{path}: {}", refused.text);
        assert_eq!(two.api.post(&two.path(path), body).await.status, 200);
    }
}

#[tokio::test]
async fn what_does_not_fit_the_contract_is_refused_with_what_to_do() {
    let world = World::start().await;
    let node = quiet_node(&world, "n1").await;
    let send = |path: String, header: &str, kind: &str, body: String| {
        let request = node.api.request(http::Method::POST, &path).header("content-type", kind.to_owned());
        let request = request.header("x-gpuaas-node-contract", header.to_owned()).body(body);
        async move {
            let response = request.send().await.unwrap();
            let headers = response.headers().clone();
            assert!(
                headers.contains_key("x-gpuaas-time-ms")
                    && headers["x-gpuaas-node-contract"] == node_proto::contract::CONTRACT
            );
            (response.status().as_u16(), response.json::<Value>().await.unwrap()["error"]["code"].clone())
        }
    };
    let heartbeat = NodeClient::heartbeat().to_string();
    let json = "application/json";
    let at = node.path("heartbeat");
    assert_eq!(send(at.clone(), "2.0", json, heartbeat.clone()).await, (400, json!("invalid_request")));
    assert_eq!(
        send(at.clone(), "1.1", "text/plain", heartbeat.clone()).await,
        (415, json!("unsupported_media_type"))
    );
    assert_eq!(send(at.clone(), "1.1", json, "{".to_owned()).await, (400, json!("invalid_request")));
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(300 * 1024));
    assert_eq!(send(at, "1.1", json, large).await, (413, json!("payload_too_large")));
    assert_eq!(send(node.path("nothing"), "1.1", json, heartbeat.clone()).await, (404, json!("not_found")));
    assert_eq!(send(node.path("trust"), "1.1", json, heartbeat).await, (405, json!("method_not_allowed")));
    assert_eq!(node.api.get(&node.path("tasks/wait?seconds=x")).await.status, 400);
    assert_eq!(node.api.get(&node.path(&format!("programs/{}", "0".repeat(64)))).await.status, 404);
    assert_eq!(node.api.get(&node.path("programs/..%2f..%2fetc%2fpasswd")).await.status, 404);
}
