//! Trust over the life of an agent that is never restarted: renewal, clocks that are off, repair, rotation.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use chrono::TimeDelta;
use kernel::Ambient;
use serde_json::{Value, json};
use testkit::{Api, Machine, NodeKeys, World, eventually, eventually_within};
use tokio::task::JoinHandle;
use trust::ca::{Serial, Validity};

use crate::node_attacks::certificates::{authority, spiffe};

async fn world() -> World {
    let world = World::start().await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    world.policy("fleet.offline_after_heartbeats", 100).await;
    world
}

/// Gives the agent, which does not run, another certificate in place of the one that it joined with: made `age` seconds
/// ago, with `left` seconds to live. An agent renews when two thirds of such a life are over, or a little later.
pub async fn give_certificate(world: &World, machine: &Machine, age: i64, left: i64) {
    let ambient = Ambient::system();
    let now = ambient.now();
    let validity =
        Validity { not_before: now - TimeDelta::seconds(age), not_after: now + TimeDelta::seconds(left) };
    let (keys, serial) = (NodeKeys::generate(), Serial::random(&ambient));
    let authority = authority(world).await;
    let issued = authority.issue(&keys.csr_pem, &spiffe(machine.id()), serial, validity).unwrap();
    machine.agent.replace_pair(&issued.chain_pem, &keys.key_pem);
    let sql = "UPDATE node_certificates SET serial = $2, fingerprint = $3, not_before = $4, not_after = $5 WHERE node_id = $1";
    let done = sqlx::query(sql)
        .bind(uuid::Uuid::parse_str(machine.id().trim_start_matches("node_")).unwrap())
        .bind(&issued.serial)
        .bind(&issued.fingerprint[..])
        .bind(issued.validity.not_before)
        .bind(issued.validity.not_after)
        .execute(&mut world.db.conn(pg::Roles::Admin).await)
        .await;
    assert_eq!(done.unwrap().rows_affected(), 1);
}

pub async fn certificates(world: &World, machine: &Machine) -> Vec<Value> {
    let path = format!("/api/v1/platform/nodes/{}/certificates", machine.id());
    world.admin.get(&path).await.expect(200)["items"].as_array().unwrap().clone()
}

/// Has nodes do small things one after the other until it is told to stop, and sees that each is done.
struct Load {
    stop: Arc<AtomicBool>,
    flows: Vec<JoinHandle<usize>>,
}

impl Load {
    fn on(world: &World, machines: &[&Machine]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flow = |machine: &&Machine| {
            tokio::spawn(keep_busy(world.admin.clone(), machine.id().to_owned(), stop.clone()))
        };
        Self { flows: machines.iter().map(flow).collect(), stop }
    }

    /// How many tasks there were; all of them succeeded.
    async fn stop(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        let mut done = 0;
        for flow in self.flows {
            done += flow.await.expect("every task is done");
        }
        done
    }
}

async fn keep_busy(api: Api, node: String, stop: Arc<AtomicBool>) -> usize {
    let mut done = 0;
    while !stop.load(Ordering::SeqCst) {
        let path = format!("/api/v1/platform/nodes/{node}/collect");
        let task = api.post(&path, json!({ "parts": ["memory"] })).await.expect(202);
        let path = format!("/api/v1/platform/tasks/{}", task["id"].as_str().unwrap());
        let task = eventually("the task is over", || async {
            let task = api.get(&path).await.expect(200);
            (task["finished_at"] != Value::Null).then_some(task)
        })
        .await;
        assert_eq!((&task["state"], &task["deliveries"]), (&json!("succeeded"), &json!(1)), "{task}");
        done += 1;
    }
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_under_load_and_no_work_is_lost() {
    let world = world().await;
    let mut machines = Vec::new();
    for name in ["gpu-01", "gpu-02", "gpu-03"] {
        let mut machine = world.joined_machine(name).await;
        // Due in 4 to 9 seconds, over in 22.
        give_certificate(&world, &machine, 32, 22).await;
        machine.agent.start();
        machines.push(machine);
    }
    let load = Load::on(&world, &machines.iter().collect::<Vec<_>>());
    for machine in &machines {
        let newest = eventually_within(std::time::Duration::from_secs(30), "it is renewed", || async {
            let all = certificates(&world, machine).await;
            (all.len() == 2).then(|| all[0].clone())
        })
        .await;
        // In use, and said to be: by the agent, in its files, and to the control plane.
        eventually("the new certificate is in use", || async {
            let node = world.node(machine.id()).await;
            let (told, wanted) =
                (node["contact"]["certificate_expires_at"].as_str()?, newest["not_after"].as_str()?);
            (told[..19] == wanted[..19]).then_some(())
        })
        .await;
        assert!(!machine.agent.state_dir().join("chain.next.pem").exists());
    }
    let (tasks, bad) = (load.stop().await, "SELECT count(*) FROM node_tasks WHERE state <> 'succeeded'");
    assert!(tasks > 10, "{tasks}");
    assert_eq!(world.count(bad).await, 0);
    for machine in &mut machines {
        assert!(machine.agent.runs());
        let (well, said) = machine.agent.run_command(&["doctor"]);
        assert!(well && said.contains("ok    certificate: good until"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_five_minutes_off_either_way_keeps_no_node_from_joining_working_and_renewing() {
    let world = world().await;
    for (name, seconds) in [("ahead", 299), ("behind", -299)] {
        let mut machine = world.machine(name).await;
        machine.skew(seconds);
        let (joined, said) = machine.agent.join("enroll", &machine.node.join, &machine.node.token);
        assert!(joined, "{name}: {said}");
        // Due already, also by a clock that is late.
        give_certificate(&world, &machine, 3600, 600).await;
        machine.agent.start();
        world.activate(&machine).await;
        let task = world.probe(&machine).await;
        assert_eq!(world.task_ended(&task).await["state"], "succeeded", "{name}");
        eventually_within(std::time::Duration::from_secs(30), "it is renewed", || async {
            (certificates(&world, &machine).await.len() == 2).then_some(())
        })
        .await;
        eventually("the clock is seen", || async {
            let offset = world.node(machine.id()).await["contact"]["clock_offset_ms"].as_i64()?;
            ((offset / 1000 - seconds).abs() < 30).then_some(())
        })
        .await;
        let (_, said) = machine.agent.run_command(&["doctor"]);
        assert!(said.contains("warn  clock") && said.contains("time synchronisation"), "{name}: {said}");
        let task = world.probe(&machine).await;
        assert_eq!(world.task_ended(&task).await["state"], "succeeded", "{name}");
    }
}

async fn repair_token(world: &World, machine: &Machine) -> String {
    let path = format!("/api/v1/platform/nodes/{}/repair-token", machine.id());
    world.admin.post(&path, json!({})).await.expect(201)["token"].as_str().unwrap().to_owned()
}

async fn log_says(machine: &Machine, text: &str) {
    eventually(&format!("the agent says {text:?}"), || async {
        machine.agent.log().contains(text).then_some(())
    })
    .await;
}

/// It is heard of again, by the process that ran all the time, and works.
async fn is_back(world: &World, machine: &mut Machine) {
    let task = world.probe(machine).await;
    assert_eq!(world.task_ended(&task).await["state"], "succeeded");
    assert!(machine.agent.runs());
    let (well, said) = machine.agent.run_command(&["doctor"]);
    assert!(well, "{said}");
}

#[tokio::test]
async fn an_agent_whose_certificate_is_over_says_what_to_do_and_comes_back_with_a_repair_token() {
    let world = world().await;
    let mut machine = world.active_machine("gpu-01").await;
    machine.agent.kill();
    give_certificate(&world, &machine, 3600, -5).await;
    let refused = world.count("SELECT count(*) FROM audit_logs WHERE result = 'refused'").await;
    machine.agent.start();
    log_says(&machine, "run `gpuaas-agent repair`").await;
    let (well, said) = machine.agent.run_command(&["doctor"]);
    assert!(!well && said.contains("FAIL  certificate: expired") && said.contains("repair token"), "{said}");
    assert!(world.count("SELECT count(*) FROM audit_logs WHERE result = 'refused'").await > refused);
    let (repaired, said) = machine.agent.repair("gpuaas_nbt_guessed");
    assert!(!repaired && said.contains("new token"), "{said}");

    let token = repair_token(&world, &machine).await;
    let (repaired, said) = machine.agent.repair(&token);
    assert!(repaired && !said.contains(&token), "{said}");
    is_back(&world, &mut machine).await;
    let (again, said) = machine.agent.repair(&token);
    assert!(!again, "a token is worth one repair: {said}");
    is_back(&world, &mut machine).await;

    // Revoked by an operator: at once without a voice, and back the same way.
    let path = format!("/api/v1/platform/nodes/{}/certificates/revoke", machine.id());
    world.admin.post(&path, json!({ "reason": "stolen" })).await.expect(200);
    let task = world.probe(&machine).await;
    log_says(&machine, "refuses this node's certificate").await;
    let (well, said) = machine.agent.run_command(&["doctor"]);
    assert!(!well && said.contains("FAIL  control plane") && said.contains("gpuaas-agent repair"), "{said}");
    assert_eq!(world.task(&task).await["state"], "queued");
    let (repaired, said) = machine.agent.repair(&repair_token(&world, &machine).await);
    assert!(repaired, "{said}");
    assert_eq!(world.task_ended(&task).await["state"], "succeeded");
    is_back(&world, &mut machine).await;
}

pub async fn trust_list(world: &World, what: &str) -> Vec<Value> {
    let listed = world.admin.get(&format!("/api/v1/platform/trust/{what}")).await.expect(200);
    listed["items"].as_array().unwrap().clone()
}

/// Until every node has heard of it and said so.
pub async fn confirmed(world: &World, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    eventually_within(std::time::Duration::from_secs(30), "all nodes believe it", || async {
        let found = trust_list(world, what).await.into_iter().find(&is)?;
        (found["nodes_confirmed"] == found["nodes_total"] && found["nodes_total"] != 0).then_some(found)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn signers_change_while_work_flows_and_no_agent_restarts() {
    let world = world().await;
    let (mut one, mut two) = (world.active_machine("gpu-01").await, world.active_machine("gpu-02").await);
    let signers = "/api/v1/platform/trust/signers";
    let load = Load::on(&world, &[&one, &two]);
    world.admin.post(signers, json!({})).await.expect(201);
    confirmed(&world, "signers", |signer| signer["signer_version"] == 2).await;
    world.admin.post(&format!("{signers}/2/activate"), json!({})).await.expect(200);
    let signed = eventually("work comes from the new signer", || async {
        let task = world.task(&world.probe(&one).await).await;
        (task["signer_version"] == 2).then_some(task)
    })
    .await;
    assert_eq!(world.task_ended(signed["id"].as_str().unwrap()).await["state"], "succeeded");
    // What the old one signed was done meanwhile; it is not needed any more.
    eventually("nothing of the old signer is under way", || async {
        let sql = "SELECT count(*) FROM node_tasks WHERE signer_version = 1 AND finished_at IS NULL";
        (world.count(sql).await == 0).then_some(())
    })
    .await;
    world.admin.post(&format!("{signers}/1/retire"), json!({})).await.expect(200);
    let last = [world.probe(&one).await, world.probe(&two).await];
    for task in &last {
        assert_eq!(world.task_ended(task).await["state"], "succeeded");
    }
    assert!(load.stop().await > 4);
    assert_eq!(world.count("SELECT count(*) FROM node_tasks WHERE state <> 'succeeded'").await, 0);
    for machine in [&mut one, &mut two] {
        assert!(machine.agent.runs());
        eventually("the agent knows one signer less", || async {
            let (_, said) = machine.agent.run_command(&["doctor"]);
            said.contains("with 1").then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authority_changes_while_work_flows_and_no_agent_restarts() {
    let world = world().await;
    let mut machine = world.joined_machine("gpu-01").await;
    // Renews in 30 to 36 seconds, long after the change, and is over in 48.
    give_certificate(&world, &machine, 6, 48).await;
    machine.agent.start();
    world.activate(&machine).await;
    let load = Load::on(&world, &[&machine]);
    let authorities = "/api/v1/platform/trust/authorities";
    let old = trust_list(&world, "authorities").await[0]["id"].clone();
    let staged = world.admin.post(authorities, json!({})).await.expect(201)["id"].clone();
    confirmed(&world, "authorities", |authority| authority["id"] == staged).await;
    let step = |id: &Value, step: &str| format!("{authorities}/{}/{step}", id.as_str().unwrap());
    world.admin.post(&step(&staged, "activate"), json!({})).await.expect(200);
    // The certificate of the old generation still counts, also on new connections to the new one's listener.
    let (well, said) = machine.agent.run_command(&["doctor"]);
    assert!(well, "{said}");
    world.admin.post(&step(&old, "retire"), json!({})).await.refused(409, "in_use");
    eventually_within(
        std::time::Duration::from_secs(40),
        "the node has a certificate of the new one",
        || async {
            let newest = certificates(&world, &machine).await.into_iter().next()?;
            (newest["authority_id"] == staged).then_some(())
        },
    )
    .await;
    // When the last certificate of the old one is over, it can go, and nobody needs to force it.
    eventually_within(std::time::Duration::from_secs(40), "the old one can be retired", || async {
        (world.admin.post(&step(&old, "retire"), json!({})).await.status == 200).then_some(())
    })
    .await;
    eventually("the agent believes the new one only", || async {
        let node = world.node(machine.id()).await;
        (node["contact"]["authority_ids"] == json!([staged])).then_some(())
    })
    .await;
    let task = world.probe(&machine).await;
    assert_eq!(world.task_ended(&task).await["state"], "succeeded");
    assert!(load.stop().await > 10);
    assert_eq!(world.count("SELECT count(*) FROM node_tasks WHERE state <> 'succeeded'").await, 0);
    is_back(&world, &mut machine).await;
}
