//! The fleet by commands alone, with a machine that speaks the node contract.

use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use base64::Engine as _;
use serde_json::{Value, json};
use testkit::{CreatedNode, NodeClient, World, eventually};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::kit::{Gpuaas, text};

pub struct Fleet {
    world: World,
    pub operator: Gpuaas,
}

impl Fleet {
    pub async fn start() -> Self {
        let world = World::start().await;
        let token = world.admin.token.clone().unwrap();
        let operator = Gpuaas::new(&world.server.base).env("GPUAAS_TOKEN", &token);
        operator.run(&["regions", "create", "eu-north", "--name", "North"]).await.ok();
        operator.run(&["pools", "create", "h200", "--region", "eu-north"]).await.ok();
        Self { world, operator }
    }

    /// Creates a node and enrols it.
    pub async fn enrolled(&self, hostname: &str) -> NodeClient {
        let create = ["nodes", "create", hostname, "--region", "eu-north", "--pool", "h200"];
        let made = self.operator.json(&create).await;
        let node = CreatedNode {
            id: text(&made["node"]["id"]),
            hostname: hostname.to_owned(),
            token: text(&made["bootstrap"]["token"]),
            join: made["bootstrap"]["join"].clone(),
        };
        self.world.enrolled_node(&node).await
    }

    /// A node that serves, with two slots.
    async fn active(&self, hostname: &str) -> NodeClient {
        let node = self.enrolled(hostname).await;
        answer(&node, "slice.topology_discover", topology(2, 0)).await;
        let approve = ["nodes", "approve-slots", hostname, "--all-ready", "--wait"];
        let (ran, _) =
            tokio::join!(self.operator.run(&approve), answer(&node, "diag.health_probe", report(true)));
        ran.ok();
        node
    }

    async fn node(&self, hostname: &str) -> Value {
        self.operator.json(&["nodes", "show", hostname]).await
    }
}

/// The task that waits for the node, as it was signed.
async fn taken(node: &NodeClient) -> Value {
    let signed =
        eventually("a task is handed out", || async { node.wait(5, "").await.into_iter().next() }).await;
    let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text(&signed["payload"])).unwrap();
    serde_json::from_slice(&payload).unwrap()
}

/// Takes the task that waits and does it in one phase.
async fn answer(node: &NodeClient, task_type: &str, output: Value) -> Value {
    let task = taken(node).await;
    assert_eq!(task["task_type"], task_type, "{task}");
    let path = node.path(&format!("tasks/{}", text(&task["task_id"])));
    let started = json!({ "name": "look", "started_at": task["issued_at"] });
    node.api.post(&format!("{path}/progress"), json!({ "phases": [started] })).await.expect(200);
    let done = json!({ "name": "look", "started_at": task["issued_at"], "duration_ms": 17 });
    let result = json!({ "ending": { "status": "succeeded", "output": output }, "phases": [done] });
    node.api.post(&format!("{path}/result"), result).await.expect(200);
    task
}

/// The agent hands over a line of its log.
async fn log_line_send(node: &NodeClient, message: &str) {
    let line =
        json!({ "at": "2026-01-01T00:00:00Z", "level": "info", "source": "agent", "message": message });
    node.api.post(&node.path("logs"), json!({ "lines": [line] })).await.expect(200);
}

/// A machine with `gpus` GPUs, the last `blocked` of which cannot be sold.
fn topology(gpus: usize, blocked: usize) -> Value {
    let slot = |n: usize| {
        let blocker =
            json!({ "code": "no_nvme", "subject": format!("0000:1{n}:00.0"), "message": "Add a disk." });
        json!({
            "slot_index": n, "kind": "gpu", "model": "H200", "pci_address": format!("0000:1{n}:00.0"),
            "fabric_vf": format!("0000:2{n}:00.1"),
            "blockers": if n + blocked < gpus { json!([]) } else { json!([blocker]) },
        })
    };
    json!({
        "hostname": "gpu-01", "kernel": { "release": "6.8", "iommu_enabled": true, "arguments": [] }, "cpus": 96,
        "memory_mib": 1_000_000, "numa_nodes": [], "gpus": [], "block_devices": [], "nics": [],
        "candidates": (0..gpus).map(slot).collect::<Vec<_>>(), "blockers": [],
    })
}

/// As much of an id as a table shows.
fn tail(id: &Value) -> String {
    let id = text(id);
    id[id.len() - 12..].to_owned()
}

fn report(passed: bool) -> Value {
    let check = json!({ "name": "gpu_count", "passed": passed, "detail": "two" });
    json!({ "profile": "onboarding", "passed": passed, "checks": [check], "gpus": [] })
}

#[tokio::test]
async fn a_node_joins_and_serves_by_commands_alone() {
    let fleet = Fleet::start().await;
    let operator = &fleet.operator;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gpu-01.token");
    let path = file.to_str().unwrap();
    let create =
        ["nodes", "create", "gpu-01", "--region", "eu-north", "--pool", "h200", "--label", "rack=a1"];
    let create = [&create[..], &["--token-file", path, "-o", "json"]].concat();
    let ran = operator.run(&create).await;
    assert!(
        ran.err.contains("/install/agent.sh") && ran.err.contains(&format!("--hostname gpu-01 < {path}")),
        "{ran:?}"
    );
    // The server of this test listens on this machine only, and has no agent to install.
    for warning in
        ["offers no agent program", "cannot be reached from another machine", "`server.public_url`"]
    {
        assert!(ran.err.contains(warning), "{warning} is missing: {ran:?}");
    }
    let made = ran.json();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    assert!(!token.is_empty() && made["bootstrap"]["token"].is_null() && !made.to_string().contains(&token));
    let said = operator.run(&create).await.fails(1);
    assert!(said.contains("already exists"), "{said}");
    let page = operator.run(&["nodes", "show", "gpu-01"]).await.ok();
    assert!(
        page.contains("bootstrap_issued") && page.contains("gpuaas nodes bootstrap-token gpu-01"),
        "{page}"
    );
    // Another token is printed, and the first stops working.
    let ran = operator.run(&["nodes", "bootstrap-token", "gpu-01"]).await;
    assert!(ran.err.contains("shown only once") && ran.err.contains("/install/agent.sh"), "{ran:?}");
    let out = ran.ok();
    let second = out.lines().find_map(|line| line.strip_prefix("token")).unwrap().trim().to_owned();
    assert_ne!(second, token);

    let node = CreatedNode {
        id: text(&made["node"]["id"]),
        hostname: "gpu-01".to_owned(),
        token: second,
        join: made["bootstrap"]["join"].clone(),
    };
    let node = fleet.world.enrolled_node(&node).await;
    answer(&node, "slice.topology_discover", topology(3, 1)).await;
    let page = operator.run(&["nodes", "show", "gpu-01"]).await.ok();
    for part in [
        "awaiting_approval",
        "3 discovered",
        "no_nvme",
        "gpuaas nodes approve-slots gpu-01 --all-ready",
        "h200",
    ] {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
    let found = operator.run(&["nodes", "topology", "gpu-01"]).await.ok();
    assert!(found.contains("0  gpu  H200  0000:10:00.0") && found.contains("no_nvme"), "{found}");
    operator.run(&["nodes", "approve-slots", "gpu-01"]).await.fails(1);
    let said = operator.run(&["nodes", "approve-slots", "gpu-01", "2"]).await.fails(1);
    assert!(said.contains("have blockers and cannot be sold"), "{said}");
    operator.run(&["nodes", "approve-slots", "gpu-01", "7"]).await.fails(4);

    let approve = ["nodes", "approve-slots", "gpu-01", "0", "1", "--sku", "h200-1", "--wait", "-o", "json"];
    let (approved, probe) =
        tokio::join!(operator.run(&approve), answer(&node, "diag.health_probe", report(true)));
    assert!(approved.err.contains("diag.health_probe succeeded") && approved.err.contains("look took 17 ms"));
    let approved = approved.json();
    assert_eq!(approved.as_array().unwrap().len(), 2, "{approved}");
    assert!(approved.as_array().unwrap().iter().all(|slot| slot["state"] == "available"), "{approved}");

    let task = operator.run(&["tasks", "show", &text(&probe["task_id"])]).await.ok();
    for part in ["diag.health_probe", "succeeded", "look  17 ms", "gpu_count"] {
        assert!(task.contains(part), "{part} is missing: {task}");
    }
    node.api.post(&node.path("heartbeat"), NodeClient::heartbeat()).await.expect(200);
    let row = eventually("the node is listed with its agent", || async {
        let table = operator.run(&["nodes", "list", "--no-headers"]).await.ok();
        table.contains("0.0.1").then_some(table)
    })
    .await;
    for part in ["gpu-01", "active", "eu-north", "h200", "2/3 free", " ago", "in "] {
        assert!(row.contains(part), "{part} is missing: {row}");
    }
    let listed = operator.json(&["nodes", "list", "--label", "rack=a1", "--pool", "h200"]).await;
    assert_eq!((&listed[0]["state"], &listed[0]["slots_available"]), (&json!("active"), &json!(2)));
    let history = operator.json(&["nodes", "history", "gpu-01"]).await;
    assert_eq!((&history[0]["event"], &history[1]["event"]), (&json!("activate"), &json!("enroll")));
    assert_eq!(operator.json(&["nodes", "validations", "gpu-01"]).await[0]["passed"], true);
    let slots = operator.json(&["slots", "list", "--sku", "h200-1"]).await;
    assert_eq!(slots.as_array().unwrap().len(), 2);
    // Slots and tasks are called by what tables show of them: host name and index, or the tail of an id.
    let slot = operator.json(&["slots", "show", "gpu-01/1"]).await;
    assert_eq!(slot["slot_index"], 1, "{slot}");
    assert_eq!(operator.json(&["slots", "show", &tail(&slot["id"])]).await["id"], slot["id"]);
    operator.run(&["slots", "show", "gpu-01/9"]).await.fails(4);
    let task = operator.json(&["tasks", "show", &tail(&probe["task_id"])]).await;
    assert_eq!(task["id"], probe["task_id"]);
    for list in [["slots", "list"], ["tasks", "list"], ["nodes", "slots"]] {
        let node = if list[0] == "nodes" { &["gpu-01"][..] } else { &[] };
        let table = operator.run(&[&list[..], node].concat()).await.ok();
        let row = table.lines().nth(1).unwrap();
        assert!(row.starts_with("gpu-01 ") && !row.contains("node_"), "nodes are named: {table}");
    }
    assert_eq!(operator.json(&["nodes", "certificates", "gpu-01"]).await[0]["state"], "valid");
    // What is out of service cannot be sold.
    for (leave, enter) in [("cordon", "uncordon"), ("quarantine", "release")] {
        let reason = ["--reason", "noisy fan"];
        operator.run(&[&["nodes", leave, "gpu-01"], &reason[..]].concat()).await.ok();
        let listed = operator.json(&["nodes", "list"]).await;
        assert_eq!(
            (&listed[0]["slots_available"], &listed[0]["slots_total"]),
            (&json!(0), &json!(3)),
            "{leave}"
        );
        let reason = if enter == "release" { &reason[..] } else { &[] };
        operator.run(&[&["nodes", enter, "gpu-01"], reason].concat()).await.ok();
        assert_eq!(operator.json(&["nodes", "list"]).await[0]["slots_available"], 2, "{enter}");
    }
}

#[tokio::test]
async fn nodes_leave_and_enter_service_and_what_cannot_be_taken_back_is_asked() {
    let fleet = Fleet::start().await;
    let operator = &fleet.operator;
    let node = fleet.active("gpu-01").await;
    let drain = ["nodes", "drain", "gpu-01", "--reason", "new disks", "--wait", "-o", "json"];
    let (drained, task) =
        tokio::join!(operator.run(&drain), answer(&node, "node.drain", json!({ "drained": true })));
    assert_eq!(task["params"]["reason"], "new disks");
    assert_eq!(drained.json()["state"], "draining");
    let said = operator.run(&drain).await.fails(5);
    assert!(said.contains("invalid_transition"), "{said}");
    operator.run(&["nodes", "undrain", "gpu-01", "--reason", "disks are in"]).await.ok();
    answer(&node, "node.undrain", json!({ "drained": false })).await;
    assert_eq!(fleet.node("gpu-01").await["state"], "active");

    // A task that fails is a failure, with what the node said.
    let collect = ["nodes", "collect", "gpu-01", "--part", "mounts", "--wait"];
    let fail = async {
        let task = taken(&node).await;
        assert_eq!(task["params"], json!({ "parts": ["mounts"] }));
        let failure = json!({ "code": "driver", "message": "mounts cannot be read" });
        let path = node.path(&format!("tasks/{}/result", text(&task["task_id"])));
        let result = json!({ "ending": { "status": "failed", "failure": failure } });
        node.api.post(&path, result).await.expect(200);
    };
    let (ran, ()) = tokio::join!(operator.run(&collect), fail);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("failed: mounts cannot be read") && ran.out.contains("driver"), "{ran:?}");
    let part = json!({ "part": "mounts", "text": "/ ext4\n", "truncated": false });
    let (ran, _) =
        tokio::join!(operator.run(&collect), answer(&node, "diag.collect", json!({ "parts": [part] })));
    assert!(ran.ok().contains("── mounts\n/ ext4\n"));
    // A wait has an end; the task goes on and can be cancelled.
    let discover = ["nodes", "discover", "gpu-01", "--wait", "--timeout", "1"];
    let said = operator.run(&discover).await.fails(2);
    assert!(said.contains("still queued after 1 s"), "{said}");
    let open = operator.json(&["tasks", "list", "--node", "gpu-01", "--state", "queued"]).await;
    let cancelled = operator.json(&["tasks", "cancel", &text(&open[0]["id"])]).await;
    assert_eq!(cancelled["state"], "cancelled");
    let types: Vec<String> = operator
        .json(&["tasks", "list", "--node", "gpu-01"])
        .await
        .as_array()
        .unwrap()
        .iter()
        .map(|task| text(&task["task_type"]))
        .collect();
    assert_eq!(types[..4], ["slice.topology_discover", "diag.collect", "diag.collect", "node.undrain"]);

    for (update, labels) in [
        (&["--label", "rack=a1", "--label", "row=7"][..], json!({ "rack": "a1", "row": "7" })),
        (&["--label", "rack=b2", "--remove-label", "row", "--leave-pool"], json!({ "rack": "b2" })),
        (&["--remove-label", "rack", "--sku", "h200-1"], json!({})),
    ] {
        let args = [&["nodes", "update", "gpu-01"], update].concat();
        assert_eq!(operator.json(&args).await["labels"], labels);
    }
    let node_now = fleet.node("gpu-01").await;
    assert_eq!((&node_now["pool_id"], &node_now["sku_eligibility"]), (&Value::Null, &json!(["h200-1"])));

    let shut_out = ["nodes", "revoke-certificates", "gpu-01", "--reason", "stolen"];
    let said = operator.run(&shut_out).await.fails(1);
    assert!(said.contains("confirmation is required") && said.contains("--yes"), "{said}");
    let revoked = operator.json(&[&shut_out[..], &["--yes"]].concat()).await;
    assert_eq!(revoked[0]["state"], "revoked");
    eventually("the node is shut out", || async {
        let answer = node.api.post(&node.path("heartbeat"), NodeClient::heartbeat()).await;
        (answer.status != 200).then_some(())
    })
    .await;
    let ran = operator.run(&["nodes", "repair-token", "gpu-01"]).await;
    assert!(ran.err.contains("--repair"), "{ran:?}");
    operator.run(&["nodes", "drain", "gpu-01", "--reason", "gone"]).await.ok();
    operator.run(&["nodes", "retire", "gpu-01", "--reason", "gone"]).await.ok();
    let delete = ["nodes", "delete", "gpu-01", "--reason", "gone"];
    operator.run(&delete).await.fails(1);
    assert_eq!(operator.json(&[&delete[..], &["--yes"]].concat()).await["state"], "removing");
}

#[tokio::test]
async fn findings_and_logs_of_a_node_are_seen_and_dealt_with() {
    let fleet = Fleet::start().await;
    let operator = &fleet.operator;
    let node = fleet.active("gpu-01").await;
    let set = ["health", "rules", "set", "test.*", "--action", "cordon", "--meaning", "dust"];
    assert_eq!(operator.json(&set).await["action"], "cordon");
    let rules = operator.json(&["health", "rules", "list"]).await;
    assert!(rules.as_array().unwrap().iter().any(|rule| rule["pattern"] == "test.*"), "{rules}");
    let mut report = NodeClient::heartbeat();
    report["findings"] = json!([{
        "code": "test.dust", "subject": "node", "message": "much dust", "observed_at": "2026-01-01T00:00:00Z",
    }]);
    node.api.post(&node.path("heartbeat"), report).await.expect(200);
    let list = ["findings", "list", "--node", "gpu-01", "--state", "open", "--action", "cordon"];
    let found = eventually("the finding is listed", || async {
        let found = operator.json(&list).await;
        (found.as_array().unwrap().len() == 1).then(|| found[0].clone())
    })
    .await;
    let id = text(&found["id"]);
    assert_eq!((&found["code"], &found["message"]), (&json!("test.dust"), &json!("much dust")));
    let row = operator.run(&["nodes", "list"]).await.ok();
    assert!(row.contains("cordoned"), "{row}");
    let page = operator.run(&["nodes", "show", "gpu-01"]).await.ok();
    assert!(
        page.contains("gpuaas findings list --node gpu-01") && page.contains("gpuaas nodes uncordon gpu-01"),
        "{page}"
    );
    assert_eq!(
        operator.json(&["findings", "acknowledge", &id, "--note", "mine"]).await["state"],
        "acknowledged"
    );
    assert_eq!(operator.json(&["findings", "resolve", &id, "--note", "cleaned"]).await["state"], "resolved");
    assert_eq!(operator.json(&["findings", "show", &tail(&found["id"])]).await["note"], "cleaned");
    assert_eq!(operator.json(&list).await, json!([]));
    operator.run(&["nodes", "uncordon", "gpu-01"]).await.ok();
    operator.run(&["health", "rules", "delete", "test.*", "--yes"]).await.ok();

    log_line_send(&node, "first light \u{1b}[2J").await;
    let out = operator.run(&["nodes", "logs", "gpu-01"]).await.ok();
    assert_eq!(out, "2026-01-01T00:00:00.000Z info  agent: first light \u{fffd}[2J\n");
    assert_eq!(operator.json(&["nodes", "logs", "gpu-01"]).await[0]["source"], "agent");
    let mut follower = operator.start(&["nodes", "logs", "gpu-01", "--follow", "-o", "json"]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    for (message, next) in
        [("first light \u{1b}[2J", Some("second")), ("second", Some("third")), ("third", None)]
    {
        let line =
            tokio::time::timeout(Duration::from_secs(15), lines.next_line()).await.expect("a line in time");
        let line: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
        assert_eq!(line["message"], message);
        if let Some(next) = next {
            log_line_send(&node, next).await;
        }
    }
    follower.kill().await.unwrap();
}
