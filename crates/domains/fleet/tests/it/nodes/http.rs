//! The endpoints as a client meets them: typed input, filters, secrets shown once, refusals.

use axum::{Router, body::Body};
use endpoint::Limits;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use testkit::Callers;
use tower::ServiceExt as _;

use super::world::{World, report, succeeded, topology};

struct Client {
    router: Router,
    token: &'static str,
}

impl Client {
    fn new(world: &World, token: &'static str) -> Self {
        let policies = identity::api::Policies::new(world.test.db.clone());
        let services = Callers::operators().services(&world.test.db, policies);
        let endpoints = fleet::endpoints(world.fleet.clone());
        Self { router: endpoint::router(services, Limits::default(), endpoints), token }
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1/platform/{path}"))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), 4 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn post(&self, path: &str, body: Value, expected: u16) -> Value {
        let (status, answer) = self.send(Method::POST, path, Some(body)).await;
        assert_eq!(status, expected, "{path}: {answer}");
        answer
    }
}

#[tokio::test]
async fn an_operator_takes_a_node_through_its_life() {
    let world = World::new().await;
    let ops = Client::new(&world, "ops");
    let pool = ops.post("pools", json!({ "region": "eu-north", "name": "H200" }), 201).await;
    let body = json!({
        "hostname": "gpu-01.example.org", "region": "eu-north", "pool_id": pool["id"],
        "labels": { "rack": "r7" }, "sku_eligibility": ["h200-sxm-slice"],
    });
    let made = ops.post("nodes", body, 201).await;
    let id: kernel::ids::NodeId = made["node"]["id"].as_str().unwrap().parse().unwrap();
    let token = made["bootstrap"]["token"].as_str().unwrap();
    assert!(made["bootstrap"]["install_command"].as_str().unwrap().contains("--hostname gpu-01.example.org"));
    assert_eq!(made["bootstrap"]["join"]["url"], "https://nodes.gpuaas.test:8443");
    assert_eq!(made["bootstrap"]["join"]["root_sha256"][0].as_str().unwrap().len(), 64);
    let node = world.detail(id).await.node;
    world.enroll(&node, token).await.unwrap();
    world.onboarding_begin(id).await;
    world.answer(id, succeeded(&topology(2, 0))).await;
    let approved = ops.post(&format!("nodes/{id}/slots/approve"), json!({ "all_ready": true }), 202).await;
    assert_eq!(approved["slots"].as_array().unwrap().len(), 2);
    world.answer(id, succeeded(&report(true))).await;
    let shown = ops.get(&format!("nodes/{id}")).await;
    assert_eq!((&shown["state"], &shown["contact_state"]), (&json!("active"), &json!("never")));
    assert_eq!(shown["onboarding"]["state"], "done");
    for path in ["history", "topology", "slots", "certificates", "validations"] {
        let listed = ops.get(&format!("nodes/{id}/{path}")).await;
        assert!(path == "topology" || !listed["items"].as_array().unwrap().is_empty(), "{path}: {listed}");
    }
    let task = ops.post(&format!("nodes/{id}/collect"), json!({ "parts": ["mounts", "memory"] }), 202).await;
    assert_eq!((&task["task_type"], &task["state"]), (&json!("diag.collect"), &json!("queued")));
    ops.post(&format!("nodes/{id}/agent-update"), json!({ "sha256": "0".repeat(64) }), 400).await;
    ops.post(&format!("nodes/{id}/cordon"), json!({ "reason": "a loose cable" }), 200).await;
    ops.post(&format!("nodes/{id}/uncordon"), json!({}), 200).await;
    ops.post(&format!("nodes/{id}/remove"), json!({ "reason": "too soon" }), 409).await;
    for (step, status) in [("drain", 202), ("retire", 200), ("remove", 202)] {
        ops.post(&format!("nodes/{id}/{step}"), json!({ "reason": "old iron" }), status).await;
    }
    let refused = ops.post(&format!("nodes/{id}/reboot"), json!({ "reason": "why not" }), 409).await;
    assert_eq!(refused["error"]["code"], "invalid_transition");
}

#[tokio::test]
async fn lists_take_the_filters_they_name_and_no_others() {
    let world = World::new().await;
    let ops = Client::new(&world, "ops");
    world.active("gpu-01", 2).await;
    world.node_like("sim-01", true).await;
    let count = async |path: &str| ops.get(path).await["items"].as_array().unwrap().len();
    assert_eq!(count("nodes").await, 2);
    assert_eq!(count("nodes?state=active&region=eu-north&simulated=false").await, 1);
    assert_eq!(count("nodes?label=rack%3Dr7").await, 0);
    assert_eq!(count("nodes?hostname=sim-01&page_size=1").await, 1);
    assert_eq!(count("slots?state=available&health=healthy&region=eu-north").await, 2);
    assert_eq!(count("findings?state=open&action=credit&code=xid.79").await, 0);
    assert_eq!(count("regions?page_size=1").await, 1);
    assert_eq!(count("pools?region=eu-north").await, 0);
    for bad in [
        "nodes?state=on_fire",
        "nodes?label=rack",
        "nodes?simulated=perhaps",
        "nodes?colour=red",
        "regions?cursor=zz",
    ] {
        let (status, body) = ops.send(Method::GET, bad, None).await;
        assert_eq!(
            (status.as_u16(), &body["error"]["code"]),
            (400, &json!("validation_error")),
            "{bad}: {body}"
        );
    }
    for bad in [
        json!({ "hostname": "Not A Host", "region": "eu-north" }),
        json!({ "hostname": "gpu-09", "region": "nowhere" }),
        json!({ "hostname": "gpu-09", "region": "eu-north", "labels": { "Rack": "x" } }),
        json!({ "hostname": "gpu-09", "region": "eu-north", "pool_id": null }),
        json!({ "hostname": "gpu-09", "region": "eu-north", "colour": "red" }),
    ] {
        let answer = ops.post("nodes", bad.clone(), 400).await;
        assert_eq!(answer["error"]["code"], "validation_error", "{bad}: {answer}");
    }
}

#[tokio::test]
async fn health_rules_are_put_and_deleted_by_their_pattern() {
    let world = World::new().await;
    let ops = Client::new(&world, "ops");
    let rule = json!({ "action": "quarantine", "meaning": "A fan stopped." });
    for path in ["health-rules/fan.*", "health-rules/fan.%2A"] {
        let (status, body) = ops.send(Method::PUT, path, Some(rule.clone())).await;
        assert_eq!((status.as_u16(), &body["pattern"]), (200, &json!("fan.*")), "{body}");
    }
    let (status, _) = ops.send(Method::DELETE, "health-rules/fan.*", None).await;
    assert_eq!(status, 204);
    let (status, _) = ops.send(Method::PUT, "health-rules/FAN", Some(rule)).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn an_auditor_reads_everything_and_changes_nothing_and_others_see_nothing() {
    let world = World::new().await;
    let (node, _) = world.node("gpu-01").await;
    for endpoint in fleet::endpoints(world.fleet.clone()) {
        let declaration = endpoint.declaration();
        let path = declaration
            .path
            .trim_start_matches("/api/v1/platform/")
            .replace("{node_id}", &node.id.to_string());
        if path.contains('{') {
            continue;
        }
        for (token, allowed) in [("auditor", declaration.method == Method::GET), ("stranger", false)] {
            let (status, body) =
                Client::new(&world, token).send(declaration.method.clone(), &path, Some(json!({}))).await;
            assert_eq!(status != 403, allowed, "{token} {} {path}: {body}", declaration.method);
        }
    }
}

#[tokio::test]
async fn rules_that_move_money_need_the_permission_to_move_it() {
    let world = World::new().await;
    let (ops, admin) = (Client::new(&world, "ops"), Client::new(&world, "admin"));
    let rule = |action: &str| Some(json!({ "action": action, "meaning": "a test" }));
    let paying = "SELECT count(*) FROM health_rules WHERE action = 'credit'";
    let before = world.count(paying).await;
    for (method, path, body) in [
        (Method::PUT, "health-rules/fan.*", rule("credit")),
        (Method::PUT, "health-rules/xid.13", rule("credit")),
        (Method::PUT, "health-rules/xid.79", rule("warn")),
        (Method::DELETE, "health-rules/xid.79", None),
    ] {
        let (status, refused) = ops.send(method.clone(), path, body).await;
        assert_eq!(status, 403, "{method} {path}: {refused}");
        assert_eq!(refused["error"]["code"], "insufficient_permissions");
        assert_eq!(refused["error"]["details"]["permission"], "money.manage");
        assert!(refused["error"]["suggestion"].as_str().unwrap().contains("money.manage"), "{refused}");
    }
    assert_eq!(world.count(paying).await, before, "a refusal changes nothing");
    let (status, _) = admin.send(Method::PUT, "health-rules/xid.*", rule("credit")).await;
    assert_eq!(status, 200);
    let (status, refused) = ops.send(Method::DELETE, "health-rules/xid.13", None).await;
    assert_eq!(status, 403, "without its own rule xid.13 would pay: {refused}");
    let (status, _) = ops.send(Method::PUT, "health-rules/xid.13", rule("warn")).await;
    assert_eq!(status, 200, "what was not paid for is not paid for");
    let (status, _) = admin.send(Method::DELETE, "health-rules/xid.13", None).await;
    assert_eq!(status, 204);
}
