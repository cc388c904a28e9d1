//! Every kind of work that a workflow gives to a node goes wrong in every way: it fails, its answer is nonsense, the
//! agent dies before, during and after it, the node goes offline, the work stands still until it has expired, the node
//! is gone. What passes is survived; what does not ends where somebody can go on from, and nothing is lost or sold
//! twice.
//!
//! There is one node for each fault, and each allocation fills one, so that a round drives one kind of work into all
//! faults at once.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::{SimulatedNodes, Tenant, World, eventually_within, invariants};

/// How long a node has for a step, by policy.
const TASK_SECONDS: i64 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Fails,
    Nonsense,
    DiesBefore,
    DiesHalfWay,
    DiesAfter,
    Offline,
    Expires,
    /// Only where a machine is made or given back: it takes long.
    Gone,
}

use Fault::{DiesAfter, DiesBefore, DiesHalfWay, Expires, Fails, Gone, Nonsense, Offline};

const FAULTS: [Fault; 8] = [Fails, Nonsense, DiesBefore, DiesHalfWay, DiesAfter, Offline, Expires, Gone];

impl Fault {
    fn rule(self, hostname: &str, work: Work) -> String {
        let Work { task, half_way, .. } = work;
        let (at, what) = match self {
            Fails => (half_way, "does = 'fail'\n"),
            Nonsense => ("before", "does = 'wrong_result'\n"),
            DiesBefore => ("before", "does = 'crash'\nnth = 1\nfor_ms = 200\n"),
            DiesHalfWay => (half_way, "does = 'crash'\nnth = 1\nfor_ms = 200\n"),
            DiesAfter => ("after", "does = 'crash'\nnth = 1\nfor_ms = 200\n"),
            Offline => (half_way, "does = 'offline'\nnth = 1\nfor_ms = 800\n"),
            // It goes on when nobody waits for it any more.
            Expires => (half_way, "does = 'hang'\nnth = 1\nfor_ms = 3000\n"),
            Gone if work.gone => return format!("[[script]]\nhostname = '{hostname}'\ndoes = 'offline'\n"),
            Gone => return String::new(),
        };
        format!("[[script]]\nhostname = '{hostname}'\ntask = '{task}'\nat = '{at}'\n{what}")
    }

    /// Whether the work is done in the end; either when nothing is said.
    fn is_survived(self, work: Work) -> Option<bool> {
        match self {
            // The agent that answers is the one after the reboot.
            Nonsense if work.task == "node.reboot" => None,
            Fails | Nonsense => Some(false),
            DiesBefore | DiesHalfWay | DiesAfter | Offline => Some(true),
            // The next attempt waits for the first, which still stands in its way.
            Expires => None,
            Gone => Some(!work.gone),
        }
    }
}

/// A kind of work on nodes, and a phase in its middle.
#[derive(Clone, Copy)]
struct Work {
    task: &'static str,
    half_way: &'static str,
    gone: bool,
}

const fn work(task: &'static str, half_way: &'static str) -> Work {
    Work { task, half_way, gone: false }
}

const fn work_of_lost(task: &'static str, half_way: &'static str) -> Work {
    Work { task, half_way, gone: true }
}

struct Scene {
    world: World,
    nodes: SimulatedNodes,
    tenant: Tenant,
    sku: &'static str,
    /// What can be launched when nothing is.
    free: i64,
    /// The allocation on the node of each fault.
    live: BTreeMap<usize, String>,
}

impl Scene {
    async fn start(sku: &'static str) -> Self {
        let world = World::start_simulated().await;
        world.policy("capacity.task_seconds", TASK_SECONDS).await;
        let nodes = world.simulated(&[("h200-8", FAULTS.len())]).await;
        let tenant = world.tenant("ann").await;
        let free = world.free(sku).await;
        Self { world, nodes, tenant, sku, free, live: BTreeMap::new() }
    }

    fn faults(&self, work: Work) {
        let rules = FAULTS.iter().zip(&self.nodes.hostnames).map(|(fault, name)| fault.rule(name, work));
        self.nodes.script(&rules.collect::<String>());
    }

    /// Fills every node that has no allocation. Gives those that were over before all were full.
    async fn launch(&mut self) -> Vec<(usize, String)> {
        let mut over = Vec::new();
        while self.live.len() < FAULTS.len() {
            let id = self.placed().await;
            let node = self.world.allocation(&id).await["node_id"].clone();
            let place = self.nodes.ids.iter().position(|known| node == **known).expect("a node of ours");
            over.extend(self.live.insert(place, id).map(|before| (place, before)));
        }
        over
    }

    /// A node that was gone, or is being cleaned, takes a moment until it is for sale.
    async fn placed(&self) -> String {
        eventually_within(PATIENCE, "a node is free", || async {
            let made = self.tenant.request(json!({ "sku": self.sku, "gpus": 8 })).await;
            (made.status != 409).then(|| made.expect(202)["id"].as_str().expect("an id").to_owned())
        })
        .await
    }

    /// Nothing goes wrong any more. Nodes that were gone would take their time to try again; new agents do not.
    fn clear(&mut self, work: Work) {
        self.nodes.script("");
        if work.gone {
            self.nothing_twice();
            self.nodes.kill();
            self.nodes.start();
        }
    }

    fn nothing_twice(&self) {
        let report = self.nodes.report();
        assert_eq!(report["tasks_repeated"].as_u64(), Some(0), "no task had an effect twice: {report}");
    }

    async fn slots_are(&self, id: &str, state: &str) -> bool {
        self.world.slot_states(id).await.iter().all(|slot| slot == state)
    }

    /// Machines are made while this kind of work goes wrong. All nodes have one in the end.
    async fn provision(&mut self, work: Work) {
        self.faults(work);
        for (place, id) in self.launch().await {
            let end = self.tenant.until(&id, "failed").await;
            assert!(FAULTS[place].is_survived(work) != Some(true) && reason_is_plain(&end), "{end}");
        }
        let ends = join_all(self.live.keys().map(|place| self.launched(*place, work))).await;
        self.clear(work);
        for place in ends.into_iter().flatten() {
            let id = self.live.remove(&place).expect("an allocation");
            self.cleaned(&id).await;
            self.discover_again(place).await;
        }
        invariants::hold(&self.world.db).await;
        assert_eq!(self.launch().await, [], "nothing goes wrong any more");
        for id in self.live.values() {
            self.tenant.until(id, "active").await;
        }
    }

    /// Where it ended, if it came to nothing.
    async fn launched(&self, place: usize, work: Work) -> Option<usize> {
        let (id, fault) = (&self.live[&place], FAULTS[place]);
        let end = self.tenant.until_within(PATIENCE, id, &["active", "failed"]).await;
        let active = end["state"] == "active";
        let told = format!("{fault:?} of {}: {end}", work.task);
        assert!(fault.is_survived(work).is_none_or(|survived| survived == active), "{told}");
        if active {
            assert!(end["meter_opened_at"].is_string() && self.slots_are(id, "in_use").await, "{told}");
            return None;
        }
        assert!(end["meter_opened_at"].is_null() && reason_is_plain(&end), "{told}");
        // Whoever can take it back has; what a lost node has is fenced.
        match fault {
            // Somebody may have been on a whole machine: it is cleaned as after a release.
            Fails | Nonsense if end["shape"] == "baremetal" => {
                assert!(!self.slots_are(id, "in_use").await, "{told}");
            }
            Fails | Nonsense => assert!(self.slots_are(id, "available").await, "{told}"),
            Gone => assert!(self.slots_are(id, "cleanup_blocked").await, "{told}"),
            _ => {}
        }
        Some(place)
    }

    /// What a failed launch left is cleaned as an operator does it, until it is.
    async fn cleaned(&self, id: &str) {
        let slot = self.world.allocation(id).await["slot_ids"][0].as_str().expect("an id").to_owned();
        let path = format!("/api/v1/platform/slots/{slot}/cleanup");
        eventually_within(PATIENCE, "the slots are clean", || async {
            if self.slots_are(id, "available").await {
                return Some(());
            }
            let _ = self.world.admin.post(&path, json!({})).await;
            None
        })
        .await;
    }

    /// A machine that failed a launch is in doubt. The look that follows by itself may have failed as well, so an
    /// operator has it looked over.
    async fn discover_again(&self, place: usize) {
        let path = format!("/api/v1/platform/nodes/{}/validate", self.nodes.ids[place]);
        eventually_within(PATIENCE, "the node passes its check", || async {
            let asked = self.world.admin.post(&path, json!({ "profile": "light" })).await;
            let task = asked.body["id"].as_str()?.to_owned();
            (self.world.task_ended(&task).await["state"] == "succeeded").then_some(())
        })
        .await;
    }

    /// Something is done to active machines while this kind of work goes wrong. They stay active, and it can be done
    /// again.
    async fn operate(&self, work: Work, what: &str, done: [&str; 2]) {
        self.faults(work);
        let each = self.live.iter().map(|(place, id)| async move {
            let fault = FAULTS[*place];
            let well = self.operated(id, what, done).await;
            let told = format!("{fault:?} of {}: {:?}", work.task, self.tenant.events(id).await);
            assert!(fault.is_survived(work).is_none_or(|survived| survived == well), "{told}");
            assert_eq!(self.tenant.state(id).await, "active", "{told}");
            (!well).then_some(id)
        });
        let failed = join_all(each).await;
        invariants::hold(&self.world.db).await;
        self.nodes.script("");
        let again = failed.into_iter().flatten().map(|id| async move {
            eventually_within(PATIENCE, &format!("{what} works again"), || async {
                self.operated(id, what, done).await.then_some(())
            })
            .await;
        });
        join_all(again).await;
    }

    /// Whether it went well.
    async fn operated(&self, id: &str, what: &str, done: [&str; 2]) -> bool {
        let told = || async {
            let events = self.tenant.events(id).await;
            done.map(|name| events.iter().filter(|event| event["name"] == name).count())
        };
        let before = told().await;
        self.tenant.act(id, what).await.expect(202);
        let after = eventually_within(PATIENCE, &format!("{what} ends"), || async {
            let now = told().await;
            (now != before).then_some(now)
        })
        .await;
        after[0] > before[0]
    }

    /// Machines are given back while this kind of work goes wrong. All slots are free in the end.
    async fn release(&mut self, work: Work) {
        self.faults(work);
        let failed = join_all(self.live.iter().map(|(place, id)| self.released(*place, id, work))).await;
        invariants::hold(&self.world.db).await;
        let failed: Vec<String> = failed.into_iter().flatten().map(str::to_owned).collect();
        self.clear(work);
        join_all(failed.iter().map(|id| self.retried(id))).await;
        self.live.clear();
        eventually_within(PATIENCE, "everything is for sale again", || async {
            (self.world.free(self.sku).await == self.free).then_some(())
        })
        .await;
        invariants::hold(&self.world.db).await;
    }

    async fn released<'a>(&self, place: usize, id: &'a str, work: Work) -> Option<&'a str> {
        self.tenant.act(id, "release").await.expect(202);
        let end = self.tenant.until_within(PATIENCE, id, &["released", "release_failed"]).await;
        let (fault, over) = (FAULTS[place], end["state"] == "released");
        let told = format!("{fault:?} of {}: {end}", work.task);
        assert!(fault.is_survived(work).is_none_or(|survived| survived == over), "{told}");
        assert!(end["meter_closed_at"].is_string(), "{told}");
        let slots = if over { "available" } else { "cleanup_blocked" };
        assert!(self.slots_are(id, slots).await, "{told}");
        assert!(over || reason_is_plain(&end), "{told}");
        (!over).then_some(id)
    }

    async fn retried(&self, id: &str) {
        eventually_within(PATIENCE, "what could not be cleaned is", || async {
            let state = self.tenant.state(id).await;
            if state == "release_failed" {
                let _ = self.tenant.act(id, "retry").await;
            }
            (state == "released").then_some(())
        })
        .await;
        assert!(self.slots_are(id, "available").await, "{id} left nothing");
    }

    async fn end(self) {
        let idle = "SELECT count(*) FROM saga_runs WHERE state IN ('running', 'undoing')";
        assert_eq!(self.world.count(idle).await, 0, "nobody is still at work");
        let claims = "SELECT count(*) FROM capacity_claims WHERE freed_at IS NULL";
        assert_eq!(self.world.count(claims).await, 0);
        self.nothing_twice();
    }
}

/// It says what happened, and not that we do not know.
fn reason_is_plain(end: &Value) -> bool {
    let reason = end["state_reason"].as_str().unwrap_or_default();
    !reason.is_empty() && !reason.contains("internal error")
}

const RESTART: [&str; 2] = ["restarted", "restart_failed"];
const KEYS: [&str; 2] = ["keys_installed", "keys_not_installed"];

#[tokio::test]
async fn whatever_goes_wrong_on_the_node_of_a_slice_ends_clean_or_can_be_seen_to() {
    let mut scene = Scene::start("h200-sxm-slice").await;
    scene.provision(work_of_lost("slice.vm_provision", "disk")).await;
    scene.operate(work("slice.vm_restart", "readiness"), "restart", RESTART).await;
    scene.operate(work("slice.vm_authorized_keys", "keys"), "access/refresh", KEYS).await;
    scene.release(work_of_lost("slice.vm_release", "disk")).await;
    scene.end().await;
}

#[tokio::test]
async fn whatever_goes_wrong_on_a_whole_machine_ends_clean_or_can_be_seen_to() {
    let mut scene = Scene::start("h200-sxm-baremetal-8g").await;
    scene.provision(work_of_lost("allocation.provision_user", "home")).await;
    scene.operate(work("node.reboot", "boot"), "restart", RESTART).await;
    scene.operate(work("allocation.install_authorized_keys", "keys"), "access/refresh", KEYS).await;
    scene.release(work_of_lost("allocation.deprovision_user", "files")).await;
    scene.end().await;
}
