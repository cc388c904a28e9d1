//! Everybody does everything at once: launches, releases, restarts, failures, crashes, cordons, quarantines and
//! forced ends in a random order that a seed decides. What must always hold is asked all the while.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{Answer, SimulatedNodes, Tenant, World, eventually_within, invariants};

const CLIENTS: u64 = 6;
/// Of each client.
const OPERATIONS: u64 = 350;
/// Until all is as it was before.
const CALM: Duration = Duration::from_secs(60);
const SEED: u64 = 20_261_116;

/// Repeatable chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        (!from.is_empty()).then(|| &from[usize::try_from(self.below(from.len() as u64)).unwrap()])
    }
}

struct Storm {
    world: World,
    nodes: SimulatedNodes,
    slots: Vec<String>,
    done: AtomicU64,
    launched: AtomicU64,
    over: AtomicBool,
}

impl Storm {
    /// A tenant who launches, releases and restarts, and meets every answer that a busy fleet gives.
    async fn tenant(&self, tenant: Tenant, mut dice: Dice) {
        let mut own: Vec<String> = Vec::new();
        for _ in 0..OPERATIONS {
            let answer = match dice.below(10) {
                0..=3 => {
                    let body = match dice.below(6) {
                        0 => json!({ "sku": "h200-sxm-baremetal-8g" }),
                        1 => json!({ "sku": "compute-vm-small" }),
                        _ => json!({ "sku": "h200-sxm-slice", "gpus": dice.pick(&[1, 1, 2, 4]) }),
                    };
                    let made = tenant.request(body).await;
                    if made.status == 202 {
                        self.launched.fetch_add(1, Ordering::Relaxed);
                        own.push(made.body["id"].as_str().unwrap().to_owned());
                    }
                    made
                }
                4..=7 => match dice.pick(&own).cloned() {
                    Some(id) => {
                        let what = ["release", "release", "release", "release", "retry", "restart"];
                        tenant.act(&id, dice.pick(&what).unwrap()).await
                    }
                    None => tenant.api().get("/api/v1/catalog").await,
                },
                8 => match dice.pick(&own) {
                    Some(id) => tenant.api().get(&tenant.path(&format!("/{id}"))).await,
                    None => tenant.api().get(&tenant.path("")).await,
                },
                _ => tenant.api().get(&tenant.path("?live=true&page_size=5")).await,
            };
            // Refused is fine; broken is not.
            assert!(matches!(answer.status, 200 | 202 | 409), "{}: {}", answer.status, answer.text);
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An operator who takes nodes and slots out of service and back, and ends what is anybody's.
    async fn operator(&self, mut dice: Dice) {
        let admin = &self.world.admin;
        while !self.over.load(Ordering::Relaxed) {
            let node = format!("/api/v1/platform/nodes/{}", dice.pick(&self.nodes.ids).unwrap());
            let slot = format!("/api/v1/platform/slots/{}", dice.pick(&self.slots).unwrap());
            let because = json!({ "reason": "the weather" });
            let word = json!({ "runtime_verified_absent": true, "reason": "the weather" });
            let answer = match dice.below(14) {
                0 => admin.post(&format!("{node}/cordon"), because).await,
                1..=3 => admin.post(&format!("{node}/uncordon"), json!({})).await,
                4 => admin.post(&format!("{node}/quarantine"), because).await,
                5..=7 => admin.post(&format!("{node}/release"), because).await,
                8 => admin.post(&format!("{slot}/quarantine"), json!({})).await,
                9 => self.slot_repair(&slot).await,
                10 => admin.post(&format!("{slot}/force-cleanup"), word).await,
                11 => admin.post(&format!("{slot}/cleanup"), json!({})).await,
                n => {
                    let state = if n == 12 { "active" } else { "release_failed" };
                    let path = format!("/api/v1/platform/allocations?page_size=100&state={state}");
                    let some = admin.get(&path).await.expect(200);
                    let some = some["items"].as_array().cloned().unwrap_or_default();
                    let Some(one) = dice.pick(&some) else { continue };
                    let path = format!("/api/v1/platform/allocations/{}", one["id"].as_str().unwrap());
                    match n {
                        12 => admin.post(&format!("{path}/force-release"), because).await,
                        _ => admin.post(&format!("{path}/force-cleanup"), word).await,
                    }
                }
            };
            assert!(answer.status < 500 || answer.status == 503, "{}: {}", answer.status, answer.text);
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One step of a slot back to where it can be sold.
    async fn slot_repair(&self, slot: &str) -> Answer {
        let admin = &self.world.admin;
        let found = admin.get(slot).await;
        match found.body["state"].as_str().unwrap_or_default() {
            "cleanup_blocked" => admin.post(&format!("{slot}/cleanup"), json!({})).await,
            "quarantined" => admin.post(&format!("{slot}/restore"), json!({})).await,
            _ => found,
        }
    }

    /// What goes wrong on the nodes changes all the time.
    async fn weather(&self, mut dice: Dice) {
        let tasks = [
            "slice.vm_provision",
            "slice.vm_release",
            "allocation.deprovision_user",
            "allocation.provision_user",
            "diag.health_probe",
        ];
        let does = ["fail", "crash", "wrong_result", "offline"];
        let ats = ["before", "after"];
        while !self.over.load(Ordering::Relaxed) {
            let rule = format!(
                "[[script]]\ntask = '{}'\nhostname = '{}'\nat = '{}'\ndoes = '{}'\nfor_ms = {}\n",
                dice.pick(&tasks).unwrap(),
                dice.pick(&self.nodes.hostnames).unwrap(),
                dice.pick(&ats).unwrap(),
                dice.pick(&does).unwrap(),
                100 + dice.below(900),
            );
            self.nodes.script(&rule);
            tokio::time::sleep(Duration::from_millis(200 + dice.below(400))).await;
        }
        self.nodes.script("");
    }

    /// Asks all the while.
    async fn watch(&self) -> u64 {
        let mut looks = 0;
        while !self.over.load(Ordering::Relaxed) {
            invariants::hold(&self.world.db).await;
            looks += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        looks
    }

    /// The sky clears: everything is released, and every node and slot is put back until as much is for sale as was.
    async fn calm(&self, wanted: [i64; 2]) {
        let admin = &self.world.admin;
        eventually_within(CALM, "everything is over", || async {
            let live = self.live().await;
            for id in &live {
                let path = format!("/api/v1/platform/allocations/{id}/force-release");
                let _ = admin.post(&path, json!({ "reason": "the sun" })).await;
            }
            live.is_empty().then_some(())
        })
        .await;
        eventually_within(CALM, "as much is for sale as was before", || async {
            if self.free().await == wanted {
                return Some(());
            }
            for id in &self.nodes.ids {
                let path = format!("/api/v1/platform/nodes/{id}");
                let node = admin.get(&path).await.expect(200);
                if !node["cordon_reason"].is_null() {
                    let _ = admin.post(&format!("{path}/uncordon"), json!({})).await;
                }
                if node["state"] == "quarantined" {
                    let _ = admin.post(&format!("{path}/release"), json!({ "reason": "the sun" })).await;
                }
                let _ = admin.post(&format!("{path}/validate"), json!({ "profile": "light" })).await;
            }
            for id in &self.slots {
                self.slot_repair(&format!("/api/v1/platform/slots/{id}")).await;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            None
        })
        .await;
    }

    async fn free(&self) -> [i64; 2] {
        [self.world.free("h200-sxm-slice").await, self.world.free("h200-sxm-baremetal-8g").await]
    }

    async fn live(&self) -> Vec<String> {
        let mut live = Vec::new();
        for state in ["requested", "provisioning", "active", "releasing", "release_failed"] {
            let path = format!("/api/v1/platform/allocations?page_size=100&state={state}");
            let page = self.world.admin.get(&path).await.expect(200);
            let items = page["items"].as_array().cloned().unwrap_or_default();
            live.extend(items.iter().filter_map(|a: &Value| a["id"].as_str().map(str::to_owned)));
        }
        live
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_at_once_no_slot_is_sold_twice_and_all_comes_back() {
    let world = World::start_simulated().await;
    world.policy("capacity.task_seconds", 3).await;
    let nodes = world.simulated(&[("h200-8", 3), ("cpu", 1)]).await;
    let free = [world.free("h200-sxm-slice").await, world.free("h200-sxm-baremetal-8g").await];
    let mut slots = Vec::new();
    for id in &nodes.ids {
        let listed =
            world.admin.get(&format!("/api/v1/platform/nodes/{id}/slots?page_size=100")).await.expect(200);
        slots
            .extend(listed["items"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap().to_owned()));
    }
    let mut tenants = Vec::new();
    for n in 0..CLIENTS {
        tenants.push(world.tenant(&format!("tenant{n}")).await);
    }
    let storm = Arc::new(Storm {
        world,
        nodes,
        slots,
        done: AtomicU64::new(0),
        launched: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    let begun = std::time::Instant::now();
    let clients: Vec<_> = tenants
        .into_iter()
        .zip(0..)
        .map(|(tenant, n)| {
            let storm = storm.clone();
            tokio::spawn(async move { storm.tenant(tenant, Dice(SEED + n)).await })
        })
        .collect();
    let spawn_others = |storm: &Arc<Storm>| {
        let (a, b, c) = (storm.clone(), storm.clone(), storm.clone());
        (
            tokio::spawn(async move { a.operator(Dice(SEED + 100)).await }),
            tokio::spawn(async move { b.weather(Dice(SEED + 200)).await }),
            tokio::spawn(async move { c.watch().await }),
        )
    };
    let (operator, weather, watch) = spawn_others(&storm);
    let mut ended = Vec::new();
    for client in clients {
        ended.push(client.await);
    }
    storm.over.store(true, Ordering::Relaxed);
    let (operator, weather, looks) = (operator.await, weather.await, watch.await);
    // Whoever found something wrong says it.
    ended.into_iter().for_each(|end| end.unwrap());
    operator.unwrap();
    weather.unwrap();
    let (looks, done, launched) =
        (looks.unwrap(), storm.done.load(Ordering::Relaxed), storm.launched.load(Ordering::Relaxed));
    println!("{done} operations, {launched} launches, looked {looks} times in {:?}", begun.elapsed());
    assert!(done >= 2_000 && launched >= 50 && looks >= 10, "{done} {launched} {looks}");

    storm.calm(free).await;
    let world = &storm.world;
    let idle = "SELECT count(*) FROM saga_runs WHERE state IN ('running', 'undoing')";
    eventually_within(CALM, "nobody is still at work", || async {
        (world.count(idle).await == 0).then_some(())
    })
    .await;
    invariants::hold(&world.db).await;
    let fences = "SELECT count(*) FROM capacity_claims WHERE freed_at IS NULL";
    assert_eq!(world.count(fences).await, 0);
    let repeated = storm.nodes.report()["tasks_repeated"].as_u64();
    assert_eq!(repeated, Some(0), "no task had an effect twice");
}
