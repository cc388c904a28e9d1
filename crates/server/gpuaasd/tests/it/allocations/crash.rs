//! The control plane is killed with -9 at two hundred random moments while people launch and give back machines. Every
//! request that was accepted comes to its end, once.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Executor as _;
use testkit::{Answer, Server, ServerOptions, Tenant, World, eventually_within, free_port, invariants};

const SEED: u64 = 4_711;
const KILLS: u64 = 200;
const LAUNCHES: u64 = 50;
const CLIENTS: u64 = 5;
/// Between two kills, at most.
const PAUSE_MS: u64 = 600;
const PATIENCE: Duration = Duration::from_secs(90);
const SLICE: &str = "h200-sxm-slice";
const MACHINE: &str = "h200-sxm-baremetal-8g";

/// Repeatable chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

#[derive(Default)]
struct Progress {
    kills: AtomicU64,
    launches: AtomicU64,
    accepted: Mutex<Vec<String>>,
}

impl Progress {
    fn is_enough(&self) -> bool {
        self.kills.load(Ordering::Relaxed) >= KILLS && self.launches.load(Ordering::Relaxed) >= LAUNCHES
    }
}

/// Somebody who does not give up: asks until there is an answer, with the same key each time.
struct Stubborn {
    tenant: Tenant,
    dice: Dice,
    progress: Arc<Progress>,
}

impl Stubborn {
    async fn ask(&self, method: Method, path: &str, key: &str, body: &Value) -> Answer {
        eventually_within(PATIENCE, &format!("an answer to {method} {path}"), || async {
            let api = self.tenant.api();
            let mut request = api.request(method.clone(), path);
            if method == Method::POST {
                request = request.header("x-idempotency-key", key).json(body);
            }
            let response = request.send().await.ok()?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let text = response.text().await.ok()?;
            let body = serde_json::from_str(&text).unwrap_or(Value::Null);
            let answer = Answer { status, headers, body, text };
            // It is just starting, or still at work for the one who was cut off.
            let later = answer.status == 503 || answer.headers.contains_key("retry-after");
            (!later).then_some(answer)
        })
        .await
    }

    async fn post(&mut self, path: &str, body: Value) -> Answer {
        let key = format!("{:x}-{:x}", self.dice.below(u64::MAX), self.dice.below(u64::MAX));
        self.ask(Method::POST, path, &key, &body).await
    }

    async fn until(&self, id: &str, states: &[&str]) -> Value {
        let path = self.tenant.path(&format!("/{id}"));
        eventually_within(PATIENCE, &format!("{id} is {states:?}"), || async {
            let seen = self.ask(Method::GET, &path, "", &Value::Null).await.expect(200);
            states.contains(&seen["state"].as_str().expect("a state")).then_some(seen)
        })
        .await
    }

    async fn live(mut self) {
        while !self.progress.is_enough() {
            let body = match self.dice.below(4) {
                0 => json!({ "sku": MACHINE }),
                1 => json!({ "sku": "compute-vm-small" }),
                n => json!({ "sku": SLICE, "gpus": n - 1 }),
            };
            let made = self.post(&self.tenant.path(""), body).await;
            if made.status == 409 && made.code() == "sku_unavailable" {
                continue;
            }
            let id = made.expect(202)["id"].as_str().expect("an id").to_owned();
            self.progress.accepted.lock().expect("the list").push(id.clone());
            self.progress.launches.fetch_add(1, Ordering::Relaxed);
            // Some change their mind at once.
            let hasty = self.dice.below(5) == 0;
            if !hasty {
                let made = self.until(&id, &["active", "failed"]).await;
                assert_eq!(made["state"], "active", "a crash costs nobody a machine: {made}");
            }
            let path = self.tenant.path(&format!("/{id}/release"));
            let released = self.post(&path, json!({})).await;
            assert!(matches!(released.status, 200 | 202), "{}", released.text);
            let over = self.until(&id, &["released", "failed", "release_failed"]).await;
            assert!(over["state"] == "released" || hasty && over["state"] == "failed", "{over}");
        }
    }
}

/// One process for each group of roles, so that one can die while the others go on.
struct ControlPlane {
    world: World,
    gateway: Server,
    worker: Server,
}

impl ControlPlane {
    async fn start() -> Self {
        let port = free_port();
        let api = ServerOptions {
            roles: "api".to_owned(),
            env: vec![("GPUAAS__NODE_GATEWAY__URL".to_owned(), format!("https://127.0.0.1:{port}"))],
            ..ServerOptions::default()
        };
        let world = World::start_simulated_with(api).await;
        let others = |roles: &str, env| ServerOptions {
            roles: roles.to_owned(),
            env,
            config: "[fleet]\nauto_approve_simulated = true\n".to_owned(),
        };
        let listen = ("GPUAAS__NODE_GATEWAY__LISTEN".to_owned(), format!("127.0.0.1:{port}"));
        let gateway = world.replica_with(others("node-gateway,node-log-gateway", vec![listen])).await;
        let worker = world.replica_with(others("provisioning-worker,outbox-relay", Vec::new())).await;
        Self { world, gateway, worker }
    }

    /// Kills one and starts it again. What it had on lease would come back in a minute; to see more crashes in less
    /// time, it does so at once.
    async fn strike(&mut self, who: u64) {
        let (process, lapses) = match who {
            0 => (&mut self.world.server, None),
            1 => (
                &mut self.gateway,
                Some("UPDATE node_tasks SET lease_until = now() WHERE state = 'dispatched'"),
            ),
            _ => (
                &mut self.worker,
                Some("UPDATE saga_runs SET lease_until = now() WHERE lease_until IS NOT NULL"),
            ),
        };
        process.kill();
        if let Some(sql) = lapses {
            let mut conn = self.world.db.conn(pg::Roles::Admin).await;
            conn.execute(sql).await.expect("leases lapse");
        }
        process.spawn();
    }

    async fn ready(&mut self) {
        self.world.server.ready().await;
        self.gateway.ready().await;
        self.worker.ready().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_is_killed_two_hundred_times_keeps_every_promise() {
    let mut plane = ControlPlane::start().await;
    let nodes = plane.world.simulated(&[("h200-8", 4), ("cpu", 1)]).await;
    let free = [plane.world.free(SLICE).await, plane.world.free(MACHINE).await];
    let progress = Arc::new(Progress::default());
    let mut clients = Vec::new();
    for n in 0..CLIENTS {
        let tenant = plane.world.tenant(&format!("tenant{n}")).await;
        let client = Stubborn { tenant, dice: Dice(SEED + 1 + n), progress: progress.clone() };
        clients.push(tokio::spawn(client.live()));
    }
    let mut dice = Dice(SEED);
    for kill in 1..=KILLS {
        tokio::time::sleep(Duration::from_millis(dice.below(PAUSE_MS))).await;
        plane.strike(dice.below(3)).await;
        progress.kills.store(kill, Ordering::Relaxed);
        if kill % 20 == 0 {
            invariants::hold(&plane.world.db).await;
            assert!(clients.iter().all(|client| !client.is_finished() || kill == KILLS), "a client gave up");
        }
    }
    plane.ready().await;
    for client in clients {
        client.await.expect("every request comes to its end");
    }
    let accepted = progress.accepted.lock().expect("the list").len();
    println!("{accepted} launches, {KILLS} kills");
    assert!(accepted as u64 >= LAUNCHES);

    let world = &plane.world;
    // A machine whose launch was taken back is cleaned and makes a new key after its allocation is over.
    let cleaning = "SELECT count(*) FROM saga_runs WHERE state IN ('running', 'undoing')";
    eventually_within(PATIENCE, "machines are cleaned", || async {
        (world.count(cleaning).await == 0).then_some(())
    })
    .await;
    invariants::hold(&world.db).await;
    let made = world.count("SELECT count(*) FROM allocations").await;
    assert_eq!(usize::try_from(made).ok(), Some(accepted), "a request that is repeated makes nothing twice");
    for (what, sql) in [
        ("not over", "SELECT count(*) FROM allocations WHERE state NOT IN ('released', 'failed')"),
        ("still at work", "SELECT count(*) FROM saga_runs WHERE state IN ('running', 'undoing')"),
        ("held", "SELECT count(*) FROM capacity_claims WHERE freed_at IS NULL"),
        (
            "metered other than once",
            "SELECT count(*) FROM allocations a WHERE (meter_opened_at IS NOT NULL)::int <> (SELECT count(*) FROM outbox_events o
             WHERE o.event_type = 'provisioning.active' AND o.payload->>'allocation_id' = 'alloc_' || replace(a.id::text, '-', ''))",
        ),
    ] {
        assert_eq!(world.count(sql).await, 0, "{what}");
    }
    assert_eq!([world.free(SLICE).await, world.free(MACHINE).await], free);
    let report = nodes.report();
    assert_eq!(report["tasks_repeated"].as_u64(), Some(0), "no task had an effect twice: {report}");
}
