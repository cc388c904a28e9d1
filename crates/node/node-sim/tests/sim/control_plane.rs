//! Simulated nodes at the real control plane: a real server, a real database, real certificates.

use std::{path::Path, time::Duration};

use node_sim::{
    create,
    plan::{Extents, Faults, Plan},
    report::Report,
    run::{Options, run},
};
use serde_json::{Value, json};
use testkit::{Api, ServerOptions, World, eventually_within};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(120);

struct Playing(CancellationToken, JoinHandle<anyhow::Result<Report>>);

impl Playing {
    fn start(join: &Path, state: &Path, plan: Plan) -> Self {
        let options = Options {
            join: join.to_owned(),
            state: state.to_owned(),
            plan,
            report: None,
            summary_every: Duration::from_secs(5),
        };
        let stop = CancellationToken::new();
        Self(stop.clone(), tokio::spawn(run(options, stop)))
    }

    async fn stop(self) -> Report {
        self.0.cancel();
        self.1.await.unwrap().unwrap()
    }
}

async fn world(extra: &str) -> World {
    let config = format!("[fleet]\nauto_approve_simulated = true\n{extra}");
    World::start_with(ServerOptions { config, ..ServerOptions::default() }).await
}

async fn nodes(api: &Api) -> Vec<Value> {
    let page = api.get("/api/v1/platform/nodes?simulated=true&page_size=200").await.expect(200);
    page["items"].as_array().unwrap().clone()
}

async fn all_active(api: &Api, count: usize) -> Vec<Value> {
    eventually_within(PATIENCE, "all simulated nodes are active", || async {
        let nodes = nodes(api).await;
        (nodes.len() == count && nodes.iter().all(|node| node["state"] == "active")).then_some(nodes)
    })
    .await
}

/// Has every node collect something, `times` times; gives the tasks.
async fn collect(api: &Api, nodes: &[Value], times: usize) -> Vec<String> {
    let mut tasks = Vec::new();
    for node in nodes {
        let path = format!("/api/v1/platform/nodes/{}/collect", node["id"].as_str().unwrap());
        for _ in 0..times {
            let task = api.post(&path, json!({ "parts": ["kernel_log"] })).await.expect(202);
            tasks.push(task["id"].as_str().unwrap().to_owned());
        }
    }
    tasks
}

async fn endings(api: &Api, tasks: &[String]) -> Vec<Value> {
    let mut ended = Vec::new();
    for id in tasks {
        let path = format!("/api/v1/platform/tasks/{id}");
        let over = ["succeeded", "failed", "expired", "cancelled"];
        let task = eventually_within(PATIENCE, "the task ends", || async {
            let task = api.get(&path).await.expect(200);
            over.contains(&task["state"].as_str().unwrap()).then_some(task)
        });
        ended.push(task.await);
    }
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn the_simulated_fleet_of_an_installation_becomes_active_and_survives_the_server() {
    let extra = "[fleet.simulated]\nnodes = 4\nprofiles = [\"h200-8\", \"mi300x-8\", \"cpu\"]\n";
    let mut world = world(extra).await;
    let dir = world.server.dir.path().join("data/simulated-fleet");
    let playing = Playing::start(&dir.join("join.json"), &dir.join("state"), Plan::default());
    let active = all_active(&world.admin, 4).await;
    let mut names: Vec<_> = active.iter().map(|node| node["hostname"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["sim-cpu-1", "sim-h200-8-1", "sim-h200-8-2", "sim-mi300x-8-1"]);
    for node in &active {
        assert_eq!((&node["labels"]["simulated"], &node["simulated"]), (&json!("true"), &json!(true)));
        let slots =
            world.admin.get(&format!("/api/v1/platform/nodes/{}/slots", node["id"].as_str().unwrap())).await;
        let slots = slots.expect(200)["items"].as_array().unwrap().clone();
        assert_eq!(slots.len(), if node["hostname"] == "sim-cpu-1" { 2 } else { 8 });
        assert!(slots.iter().all(|slot| slot["state"] == "available"), "{slots:?}");
    }
    // Tokens are used up, and none is left in the list.
    let list = eventually_within(PATIENCE, "the list has no tokens", || async {
        let list: Value = serde_json::from_slice(&std::fs::read(dir.join("join.json")).ok()?).ok()?;
        list.as_array()?.iter().all(|entry| entry["token"].is_null()).then_some(list)
    });
    assert_eq!(list.await.as_array().unwrap().len(), 4);

    world.server.kill();
    world.server.spawn();
    world.server.ready().await;
    let tasks = collect(&world.admin, &active, 2).await;
    for task in endings(&world.admin, &tasks).await {
        assert_eq!(task["state"], "succeeded", "{task}");
    }
    let report = playing.stop().await;
    assert_eq!((report.enrolled, report.tasks_repeated), (4, 0), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_made_through_the_api_run_each_task_once_whatever_goes_wrong() {
    let world = world("").await;
    let dir = tempfile::tempdir().unwrap();
    // What a dead agent had not begun comes back by its lease.
    let lease = "/api/v1/platform/policies/fleet.task_lease_seconds";
    world.admin.put(lease, json!({ "value": 5 })).await.expect(200);
    world.admin.post("/api/v1/platform/regions", json!({ "code": "test", "name": "Test" })).await.expect(201);
    let token_file = dir.path().join("token");
    std::fs::write(&token_file, world.idp.token("root", "1")).unwrap();
    let join = dir.path().join("join.json");
    let options = create::Options {
        server: world.server.base.clone(),
        token_file,
        count: 6,
        profiles: vec!["h100-8".parse().unwrap(), "cpu".parse().unwrap()],
        prefix: "made".to_owned(),
        first: 1,
        region: "test".to_owned(),
        join: join.clone(),
    };
    assert_eq!(create::create(options.clone()).await.unwrap(), 6);
    assert!(create::create(options).await.is_err(), "names are taken");
    let state = dir.path().join("state");
    let playing = Playing::start(&join, &state, Plan::default());
    let active = all_active(&world.admin, 6).await;
    assert_eq!(playing.stop().await.enrolled, 6);

    let faults = Faults {
        drop: 0.01,
        delay: 0.02,
        duplicate: 0.3,
        crash: 0.02,
        skew: 0.5,
        disk_full: 0.01,
        wrong_result: 0.1,
        flap: 0.3,
    };
    let extents =
        Extents { delay_ms: 100, disk_full_ms: 300, flap_ms: 2_000, restart_ms: 50, ..Extents::default() };
    let plan = Plan {
        seed: 5,
        faults,
        extents,
        latency_ms: "0..5".parse().unwrap(),
        phase_ms: "0..20".parse().unwrap(),
        ..Plan::default()
    };
    let playing = Playing::start(&join, &state, plan);
    let tasks = collect(&world.admin, &active, 8).await;
    let ended = endings(&world.admin, &tasks).await;
    let report = playing.stop().await;
    assert_eq!(report.tasks_repeated, 0, "{report:?}");
    assert!(report.tasks_started > 0 && report.fault_duplicate > 0 && report.enrolled == 0, "{report:?}");
    for task in ended {
        assert!(matches!(task["state"].as_str(), Some("succeeded" | "failed")), "{task}");
    }
}
