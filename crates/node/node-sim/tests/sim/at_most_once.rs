//! Whatever goes wrong, a task runs at most once and ends one way.

use std::time::Duration;

use node_proto::{
    catalog::{HealthProbe, HealthProbeInput, ProbeProfile, Reboot, RebootInput},
    contract::{Ending, FailureCode},
};
use node_sim::{
    plan::{Faults, Latency, Plan},
    report::Report,
};

use crate::playing::{Sim, quick, until};

#[tokio::test(flavor = "multi_thread")]
async fn calm_nodes_enrol_once_work_and_report() {
    let mut sim =
        Sim::start(6, Plan { latency_ms: "0..2".parse().unwrap(), ..quick(Faults::default()) }).await;
    let tasks = sim.queue(6);
    sim.all_end(&tasks).await;
    until("all report", async || sim.nodes.iter().all(|node| sim.gateway.heartbeats(*node) > 0)).await;
    for id in &tasks {
        assert!(
            matches!(sim.gateway.ending(*id), Some(Ending::Succeeded { .. })),
            "{:?}",
            sim.gateway.ending(*id)
        );
    }
    let probe = HealthProbeInput { profile: ProbeProfile::Onboarding, expected_gpus: 8 };
    let probe = sim.gateway.queue::<HealthProbe>(sim.nodes[0], &probe);
    sim.all_end(&[probe]).await;
    let report = sim.stop().await;
    assert_eq!((report.enrolled, report.tasks_distinct, report.tasks_repeated), (6, 37, 0));
    assert_eq!(report.start_latency_us.count, 37);
    sim.assert_one_ending(&tasks);
    let written: Report =
        serde_json::from_slice(&std::fs::read(sim.dir.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(written, report);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_enrolled_come_back_without_a_token() {
    let mut sim = Sim::start(3, quick(Faults::default())).await;
    let before = sim.queue(2);
    sim.all_end(&before).await;
    sim.stop().await;
    sim.play(quick(Faults::default()));
    let after = sim.queue(2);
    sim.all_end(&after).await;
    assert!(sim.nodes.iter().all(|node| sim.gateway.enrolments(*node) == 1));
    assert_eq!(sim.stop().await.enrolled, 0);
    sim.assert_one_ending(&[before, after].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_twice_when_agents_die_at_any_step() {
    let mut sim = Sim::start(6, quick(Faults { crash: 0.08, ..Faults::default() })).await;
    let tasks = sim.queue(12);
    sim.all_end(&tasks).await;
    let report = sim.stop().await;
    assert_eq!(report.tasks_repeated, 0, "{:?}", report.repeated_task_ids);
    assert!(report.connected <= 6, "agents that died left connections behind: {report:?}");
    assert!(report.fault_crash > 5 && report.restarts >= report.fault_crash / 2, "{report:?}");
    let interrupted = tasks.iter().filter(|id| {
        matches!(sim.gateway.ending(**id), Some(Ending::Failed { failure }) if failure.code == FailureCode::Interrupted)
    });
    assert!(interrupted.count() > 0, "no task was interrupted: the fault does nothing");
    sim.assert_one_ending(&tasks);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_twice_when_everything_goes_wrong() {
    let faults = Faults {
        drop: 0.02,
        delay: 0.02,
        duplicate: 0.3,
        crash: 0.02,
        skew: 0.5,
        disk_full: 0.02,
        wrong_result: 0.1,
        flap: 0.5,
    };
    // A token whose answer is lost is spent: joining is not what this is about.
    let mut sim = Sim::start(6, quick(Faults::default())).await;
    until("all report", async || sim.nodes.iter().all(|node| sim.gateway.heartbeats(*node) > 0)).await;
    sim.stop().await;
    sim.play(quick(faults));
    let tasks = sim.queue(10);
    sim.all_end(&tasks).await;
    let report = sim.stop().await;
    assert_eq!(report.tasks_repeated, 0, "{:?}", report.repeated_task_ids);
    assert!(report.fault_duplicate > 0 && report.fault_drop > 0, "{report:?}");
    assert!(report.duplicates_refused > 0, "{report:?}");
    assert!(sim.gateway.deliveries() as usize >= tasks.len());
    sim.assert_one_ending(&tasks);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_is_done_when_the_machine_is_back() {
    let mut sim = Sim::start(1, quick(Faults::default())).await;
    let reboot = sim.gateway.queue::<Reboot>(sim.nodes[0], &RebootInput { reason: "test".to_owned() });
    sim.all_end(&[reboot]).await;
    let Some(Ending::Succeeded { output }) = sim.gateway.ending(reboot) else {
        panic!("{:?}", sim.gateway.ending(reboot));
    };
    assert_ne!(output["boot_id_before"], output["boot_id_after"]);
    assert_eq!(sim.stop().await.restarts, 1);
}

#[test]
fn latencies_are_read_as_written() {
    assert_eq!("5".parse::<Latency>().unwrap().0, Duration::from_millis(5)..=Duration::from_millis(5));
}
