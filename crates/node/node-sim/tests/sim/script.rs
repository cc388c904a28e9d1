//! What the script says comes to pass, at exactly that step, and the node is as a real one would be after it.

use std::time::{Duration, Instant};

use kernel::{
    Ambient,
    ids::{NodeId, TaskId},
};
use node_agent::drivers::{DevicesDriver as _, Done, Steps, simulated::Machine};
use node_proto::{
    catalog::{
        AccountSpec, Drain, DrainInput, Isolation, ProvisionUser, ProvisionUserInput, ReleasedVm,
        SlotDevices, TopologyDiscover, TopologyDiscoverInput, VmProvision, VmProvisionInput, VmRelease,
        VmReleaseInput,
    },
    contract::{Ending, FailureCode},
};
use node_sim::{
    plan::{Faults, Plan},
    script::{Does, Rule},
};

use crate::playing::{Sim, quick, until};

struct NoSteps;

impl Steps for NoSteps {
    fn begin(&self, _: &'static str) -> Done<()> {
        Ok(())
    }
}

/// As the first node of the list says at its discovery.
fn slots(count: usize) -> Vec<SlotDevices> {
    let machine = Machine::new("h200-8".parse().unwrap(), "sim-h200-8-0", 0, Ambient::system());
    let found = machine.discover(&NoSteps).unwrap().candidates;
    let slot = |slot: &node_proto::catalog::CandidateSlot| SlotDevices {
        slot_index: slot.slot_index,
        pci_address: slot.pci_address.clone(),
        nvme_device: slot.nvme_device.clone(),
        fabric_vf: slot.fabric_vf.clone(),
        numa_node: slot.numa_node,
    };
    found.iter().take(count).map(slot).collect()
}

fn wanted(owner: &str) -> VmProvisionInput {
    VmProvisionInput {
        owner: owner.to_owned(),
        slots: slots(2),
        vcpus: 48,
        memory_mib: 131_072,
        image: "ubuntu-24.04".to_owned(),
        username: "alice".to_owned(),
        authorized_keys: Vec::new(),
    }
}

fn rule(task: &str, at: &str, does: Does) -> Rule {
    Rule { task: Some(task.to_owned()), nth: Some(1), at: at.to_owned(), does, ..Rule::default() }
}

struct Scene {
    sim: Sim,
    plan: Plan,
    node: NodeId,
}

impl Scene {
    async fn start(rules: &[Rule]) -> Self {
        let plan = Plan { script: rules.to_vec().into(), ..quick(Faults::default()) };
        let sim = Sim::start(2, plan.clone()).await;
        let node = sim.nodes[0];
        Self { sim, plan, node }
    }

    async fn ends(&self, task: TaskId) -> Ending {
        self.sim.all_end(&[task]).await;
        self.sim.gateway.ending(task).unwrap()
    }

    async fn provision(&self, owner: &str) -> Ending {
        self.ends(self.sim.gateway.queue::<VmProvision>(self.node, &wanted(owner))).await
    }

    async fn release(&self, owner: &str) -> ReleasedVm {
        let input = VmReleaseInput { owner: owner.to_owned(), slots: slots(2) };
        let ending = self.ends(self.sim.gateway.queue::<VmRelease>(self.node, &input)).await;
        let Ending::Succeeded { output } = ending else { panic!("{ending:?}") };
        serde_json::from_value(output).unwrap()
    }

    async fn machines_are(&self, owners: &[&str]) {
        until("the inventory", async || self.sim.gateway.inventory(self.node).machines == owners).await;
    }
}

fn code(ending: &Ending) -> Option<FailureCode> {
    match ending {
        Ending::Failed { failure } => Some(failure.code),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_fails_at_the_named_phase_and_leaves_what_came_before_it() {
    let fails = |nth, at: &str| Rule {
        nth: Some(nth),
        code: FailureCode::Unavailable,
        ..rule("slice.vm_provision", at, Does::Fail)
    };
    let mut scene = Scene::start(&[fails(1, "before"), fails(2, "disk"), fails(4, "after")]).await;
    assert_eq!(code(&scene.provision("a1").await), Some(FailureCode::Unavailable));
    assert_eq!(scene.release("a1").await, ReleasedVm::default(), "nothing was done");

    assert_eq!(code(&scene.provision("a1").await), Some(FailureCode::Unavailable));
    scene.machines_are(&["a1"]).await;
    let released = scene.release("a1").await;
    assert_eq!((released.machine_removed, released.lease_removed), (false, true));

    assert!(matches!(scene.provision("a1").await, Ending::Succeeded { .. }));
    assert_eq!(code(&scene.provision("a1").await), Some(FailureCode::Unavailable));
    assert!(scene.release("a1").await.machine_removed);
    scene.machines_are(&[]).await;
    assert_eq!(scene.sim.stop().await.fault_script, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_dies_before_during_or_after_and_its_machines_survive() {
    for (at, leased, made) in [("before", false, false), ("machine", true, false), ("after", true, true)] {
        let mut scene = Scene::start(&[rule("slice.vm_provision", at, Does::Crash)]).await;
        assert_eq!(code(&scene.provision("a1").await), Some(FailureCode::Interrupted), "{at}");
        scene.machines_are(if leased { &["a1"] } else { &[] }).await;
        let released = scene.release("a1").await;
        assert_eq!((released.lease_removed, released.machine_removed), (leased, made), "{at}");
        assert!(matches!(scene.provision("a1").await, Ending::Succeeded { .. }), "{at}");
        assert_eq!(scene.sim.stop().await.restarts, 1, "{at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_hangs_goes_on_after_its_time_and_holds_up_its_owner_only() {
    let hangs = Rule { for_ms: Some(1_500), ..rule("slice.vm_provision", "image", Does::Hang) };
    let scene = Scene::start(&[hangs]).await;
    let first = scene.sim.gateway.queue::<VmProvision>(scene.node, &wanted("a1"));
    until("it hangs", async || scene.sim.gateway.begun(first)).await;
    let release = VmReleaseInput { owner: "a1".to_owned(), slots: slots(2) };
    let release = scene.sim.gateway.queue::<VmRelease>(scene.node, &release);
    let other = scene.sim.gateway.queue::<TopologyDiscover>(scene.node, &TopologyDiscoverInput {});
    scene.sim.all_end(&[other]).await;
    assert!(scene.sim.gateway.ending(first).is_none() && scene.sim.gateway.ending(release).is_none());
    assert!(matches!(scene.ends(first).await, Ending::Succeeded { .. }));
    let Ending::Succeeded { output } = scene.ends(release).await else { panic!("it is released") };
    assert_eq!(output["machine_removed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_goes_offline_tells_its_result_when_it_is_back() {
    let offline = Rule { for_ms: Some(1_000), ..rule("slice.vm_provision", "readiness", Does::Offline) };
    let scene = Scene::start(&[offline]).await;
    assert!(matches!(scene.provision("a1").await, Ending::Succeeded { .. }));
    // A rule of its own takes the node away for as long as it is there.
    let away = Rule { hostname: "sim-h200-*".to_owned(), does: Does::Offline, ..Rule::default() };
    scene.plan.script.add(away);
    let drain = scene.sim.gateway.queue::<Drain>(scene.node, &DrainInput { reason: "test".to_owned() });
    // Its neighbour is heard meanwhile, so it would be too.
    let (node, neighbour) = (scene.node, scene.sim.nodes[1]);
    let heard = |node| scene.sim.gateway.heartbeats(node);
    let before = (heard(node), heard(neighbour));
    until("the neighbour reports", async || heard(neighbour) > before.1 + 3).await;
    assert!(heard(node) <= before.0 + 1 && scene.sim.gateway.ending(drain).is_none());
    scene.plan.script.clear();
    assert!(matches!(scene.ends(drain).await, Ending::Succeeded { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_takes_no_new_slice_and_users_show_in_the_inventory() {
    let scene = Scene::start(&[rule("allocation.provision_user", "keys", Does::WrongResult)]).await;
    let user = ProvisionUserInput {
        account: AccountSpec { username: "alice".to_owned(), uid: 20_001, gid: 20_001 },
        owner: "a2".to_owned(),
        shell: "/bin/bash".to_owned(),
        authorized_keys: Vec::new(),
        limits: Default::default(),
        isolation: Isolation::UserRevoke,
    };
    let user = scene.ends(scene.sim.gateway.queue::<ProvisionUser>(scene.node, &user)).await;
    let Ending::Succeeded { output } = user else { panic!("{user:?}") };
    assert!(output.get("username").is_none(), "nonsense, as the script says");
    until("the user", async || scene.sim.gateway.inventory(scene.node).users == ["alice"]).await;
    scene.ends(scene.sim.gateway.queue::<Drain>(scene.node, &DrainInput { reason: "test".to_owned() })).await;
    assert_eq!(code(&scene.provision("a1").await), Some(FailureCode::Unavailable));
    scene.machines_are(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_machine_has_survives_the_end_of_the_simulator() {
    let mut scene = Scene::start(&[]).await;
    assert!(matches!(scene.provision("a1").await, Ending::Succeeded { .. }));
    scene.ends(scene.sim.gateway.queue::<Drain>(scene.node, &DrainInput { reason: "test".to_owned() })).await;
    scene.sim.stop().await;
    scene.sim.play(scene.plan.clone());
    assert_eq!(code(&scene.provision("a2").await), Some(FailureCode::Unavailable), "it is still drained");
    scene.machines_are(&["a1"]).await;
    assert!(scene.release("a1").await.machine_removed);
    scene.machines_are(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_work_takes_no_time_unless_the_plan_says_so() {
    let sim = Sim::start(1, Plan::default()).await;
    let scene = Scene { node: sim.nodes[0], sim, plan: Plan::default() };
    assert!(matches!(scene.provision("a0").await, Ending::Succeeded { .. }));
    scene.release("a0").await;
    let began = Instant::now();
    let task = scene.sim.gateway.queue::<VmProvision>(scene.node, &wanted("a1"));
    scene.ends(task).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let result = scene.sim.gateway.results(task)[0].clone();
    assert_eq!(result.phases.len(), 10);
    let took: u64 = result.phases.iter().map(|phase| phase.duration_ms.unwrap()).sum();
    assert!(took < 500, "{:?}", result.phases);
}
