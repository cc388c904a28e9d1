//! How workflows end when the node fails, is away, or says what cannot be believed.

use capacity::service::{
    access::{grant_create, grant_delete},
    release::{allocation_release, allocation_restart, allocation_retry},
    slot_cleanup::slot_cleanup_retry,
};
use chrono::TimeDelta;
use kernel::ids::{AllocationId, SlotId};
use node_proto::{
    TaskType,
    catalog::{HealthReport, ProbeCheck, ProbeProfile, ProvisionedVm, ReleasedVm},
    contract::{Ending, FailureCause, FailureCode, TaskFailure},
};
use saga::Engine;
use serde::Serialize;
use uuid::Uuid;

use super::{
    invariants,
    kit::{GPUS, Kit, MACHINE, SLICE},
    node::failed,
};

fn well(output: impl Serialize) -> Ending {
    Ending::Succeeded { output: serde_json::to_value(output).unwrap() }
}

fn sick(profile: ProbeProfile) -> Ending {
    let check =
        ProbeCheck { name: "gpu_driver".to_owned(), passed: false, detail: "host-7 is broken".to_owned() };
    well(HealthReport { profile, passed: true, checks: vec![check], gpus: Vec::new() })
}

async fn release(kit: &Kit, id: AllocationId) {
    let mut tx = kit.as_creator().await;
    allocation_release(&kit.capacity, &mut tx, kit.asked(id)).await.unwrap();
    tx.commit(None).await.unwrap();
}

async fn grant(kit: &Kit, id: AllocationId) {
    let mut tx = kit.as_creator().await;
    grant_create(&kit.capacity, &mut tx, kit.asked(id), kit.creator, kit.other).await.unwrap();
    tx.commit(None).await.unwrap();
}

async fn ungrant(kit: &Kit, id: AllocationId) {
    let mut tx = kit.as_creator().await;
    grant_delete(&kit.capacity, &mut tx, kit.asked(id), kit.other).await.unwrap();
    tx.commit(None).await.unwrap();
}

/// Works the saga until it waits for a node.
async fn until_it_waits(kit: &Kit, saga: &str) {
    let engine = Engine::new(kit.test.db.clone(), kit.wake.clone(), vec![kit.saga(saga)]);
    engine.run_once().await.unwrap();
}

async fn keys_behind(kit: &Kit, id: AllocationId) -> i64 {
    kit.one(&format!("SELECT access_version - installed_access FROM allocations WHERE id = '{}'", id.uuid()))
        .await
}

#[tokio::test]
async fn a_machine_whose_drivers_do_not_work_is_never_billed() {
    let kit = Kit::new().await;
    let id = kit.launch(MACHINE).await;
    kit.ends(TaskType::HealthProbe, vec![sick(ProbeProfile::Light)]);
    assert_eq!(kit.drive(&id.to_string()).await, "undone");
    assert_eq!((kit.state(id).await.as_str(), kit.slots(id).await.as_str()), ("failed", "cleaning"));
    assert_eq!(kit.reason(id).await, "the machine failed its health check");
    assert_eq!(kit.tasks(id, "allocation.deprovision_user").await, 1);
    let doubted = format!(
        "SELECT string_agg(DISTINCT health, ' ') FROM node_resource_slots s JOIN allocations a ON s.id = ANY (a.slot_ids)
         WHERE a.id = '{}'",
        id.uuid()
    );
    assert_eq!(
        kit.one::<String>(&doubted).await,
        "unknown",
        "nobody else is given it before it was looked over"
    );
    let told = "SELECT count(*) FROM outbox_events WHERE event_type = 'nodes.doubted'";
    assert_eq!(kit.one::<i64>(told).await, 1);
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn a_slice_that_sees_too_few_gpus_is_taken_back() {
    let kit = Kit::new().await;
    let id = kit.launch(SLICE).await;
    let vm = ProvisionedVm {
        owner: id.to_string(),
        ssh_host: "h".to_owned(),
        ssh_port: 22,
        gpus_visible: u32::try_from(GPUS).unwrap() - 1,
        created: true,
    };
    kit.ends(TaskType::VmProvision, vec![well(vm)]);
    assert_eq!(kit.drive(&id.to_string()).await, "undone");
    assert_eq!(kit.reason(id).await, "not all GPUs work");
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn what_passes_is_tried_again_and_what_does_not_is_not() {
    let kit = Kit::new().await;
    for code in
        [FailureCode::Interrupted, FailureCode::Unavailable, FailureCode::Timeout, FailureCode::Journal]
    {
        let id = kit.launch(SLICE).await;
        kit.ends(TaskType::VmProvision, vec![failed(code, "on host-7"), failed(code, "on host-7")]);
        assert_eq!(kit.drive(&id.to_string()).await, "succeeded", "{code:?}");
        assert_eq!(kit.tasks(id, "slice.vm_provision").await, 3);
    }
    for code in [FailureCode::Driver, FailureCode::Invalid, FailureCode::Cancelled] {
        let id = kit.launch(SLICE).await;
        kit.ends(TaskType::VmProvision, vec![failed(code, "on host-7")]);
        assert_eq!(kit.drive(&id.to_string()).await, "undone", "{code:?}");
        assert_eq!(kit.tasks(id, "slice.vm_provision").await, 1);
    }
    let id = kit.launch(SLICE).await;
    let busy = TaskFailure::new(FailureCode::Unavailable, "full");
    let drained = TaskFailure { cause: Some(FailureCause::Drained), ..busy };
    kit.ends(TaskType::VmProvision, vec![Ending::Failed { failure: drained }]);
    assert_eq!(kit.drive(&id.to_string()).await, "undone");
    assert_eq!(kit.reason(id).await, "the machine was being drained");
    // The code goes from the node through step and run to the allocation.
    let code = format!(
        "SELECT a.failure_code || ' ' || r.failure_code || ' ' || s.failure_code FROM allocations a
         JOIN saga_runs r ON r.subject = 'alloc_' || replace(a.id::text, '-', '')
         JOIN saga_steps s ON s.run_id = r.id AND s.state = 'failed' WHERE a.id = '{}'",
        id.uuid()
    );
    assert_eq!(kit.one::<String>(&code).await, "node_drained node_drained node_drained");
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn a_node_that_is_away_costs_the_project_nothing_and_its_slots_are_cleaned_when_it_is_back() {
    let kit = Kit::new().await;
    for sku in [MACHINE, SLICE] {
        let id = kit.launch(sku).await;
        *kit.silent.lock().unwrap() = true;
        assert_eq!(kit.drive(&id.to_string()).await, "stuck");
        assert_eq!(
            (kit.state(id).await.as_str(), kit.slots(id).await.as_str()),
            ("failed", "cleanup_blocked")
        );
        assert_eq!(kit.reason(id).await, "the machine did not answer in time");
        assert_eq!((kit.claims(id).await, kit.meters(id, "launch_failed").await), (0, 1));
        invariants::hold(&kit).await;

        *kit.silent.lock().unwrap() = false;
        let slot = format!("SELECT slot_ids[1] FROM allocations WHERE id = '{}'", id.uuid());
        let slot = SlotId::from(kit.one::<Uuid>(&slot).await);
        let mut tx = kit.as_operator().await;
        let cleanup = slot_cleanup_retry(&mut tx, slot).await.unwrap();
        tx.commit(None).await.unwrap();
        assert_eq!(kit.drive(&cleanup.slot_ids[0].to_string()).await, "succeeded");
        assert_eq!(kit.slots(id).await, "available");
        invariants::hold(&kit).await;
    }
}

#[tokio::test]
async fn a_release_while_provisioning_takes_back_and_says_who_wanted_it() {
    let kit = Kit::new().await;
    let id = kit.launch(MACHINE).await;
    until_it_waits(&kit, "provision_machine").await;
    assert_eq!(kit.state(id).await, "provisioning");
    release(&kit, id).await;
    until_it_waits(&kit, "provision_machine").await;
    assert_eq!(kit.drive(&id.to_string()).await, "undone");
    assert_eq!(kit.reason(id).await, "released by its project");
    let given_up = "SELECT state FROM node_tasks WHERE task_type = 'allocation.provision_user'";
    assert_eq!(kit.one::<String>(given_up).await, "cancelled", "a node that has not begun it never gets it");
    assert_eq!((kit.state(id).await.as_str(), kit.slots(id).await.as_str()), ("released", "cleaning"));
    assert_eq!((kit.meters(id, "open").await, kit.meters(id, "launch_failed").await), (0, 1));
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn a_release_of_a_launch_that_lost_its_workflow_ends_it_and_cleans_its_slots() {
    let kit = Kit::new().await;
    for (sku, saga) in [(MACHINE, "provision_machine"), (SLICE, "provision_slice")] {
        let id = kit.launch(sku).await;
        until_it_waits(&kit, saga).await;
        kit.sql(&format!(
            "UPDATE saga_runs SET state = 'stuck', failure = 'lost', finished_at = now(), wake_key = NULL
                 WHERE subject = '{id}'"
        ))
        .await;
        kit.clock.advance(TimeDelta::seconds(1));
        release(&kit, id).await;
        release(&kit, id).await;
        assert_eq!(kit.drive(&id.to_string()).await, "succeeded");
        assert_eq!((kit.state(id).await.as_str(), kit.claims(id).await), ("released", 0));
        let open = "SELECT count(*) FROM node_tasks WHERE state = 'queued' AND task_type LIKE '%provision%'";
        assert_eq!(kit.one::<i64>(open).await, 0, "the node never gets what the lost workflow asked for");
        assert_eq!(kit.meters(id, "launch_failed").await, 1, "what was set aside goes back, once");
        let slot =
            format!("SELECT min(s::text) FROM allocations, unnest(slot_ids) s WHERE id = '{}'", id.uuid());
        let slot: String = kit.one(&slot).await;
        let slot = SlotId::from(slot.parse::<Uuid>().unwrap());
        assert_eq!(kit.drive(&slot.to_string()).await, "succeeded", "whatever was made of it is removed");
        assert_eq!(kit.slots(id).await, "available");
    }
}

#[tokio::test]
async fn an_order_that_somebody_changed_is_not_carried_out() {
    let kit = Kit::new().await;
    let id = kit.launch(SLICE).await;
    kit.sql(&format!("UPDATE allocations SET work_order = 'forged' WHERE id = '{}'", id.uuid())).await;
    assert_eq!(kit.drive(&id.to_string()).await, "stuck");
    assert_eq!(kit.one::<i64>("SELECT count(*) FROM node_tasks").await, 0);
    assert_eq!((kit.state(id).await.as_str(), kit.slots(id).await.as_str()), ("failed", "cleanup_blocked"));
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn a_machine_that_fails_its_check_between_tenants_stays_fenced_until_it_passes() {
    let kit = Kit::new().await;
    let id = kit.active(MACHINE).await;
    release(&kit, id).await;
    kit.ends(TaskType::HealthProbe, vec![sick(ProbeProfile::BetweenTenants)]);
    assert_eq!(kit.drive(&id.to_string()).await, "stuck");
    assert_eq!(
        (kit.state(id).await.as_str(), kit.slots(id).await.as_str()),
        ("release_failed", "cleanup_blocked")
    );
    assert!(kit.claims(id).await > 0, "the capacity stays its own");
    let evidence = "SELECT count(*) FROM node_validations WHERE NOT passed AND profile = 'between_tenants'";
    assert_eq!(kit.one::<i64>(evidence).await, 1, "the evidence is kept");
    invariants::hold(&kit).await;

    let mut tx = kit.as_creator().await;
    allocation_retry(&mut tx, kit.asked(id)).await.unwrap();
    tx.commit(None).await.unwrap();
    invariants::hold(&kit).await;
    assert_eq!(kit.drive(&id.to_string()).await, "succeeded");
    assert_eq!((kit.state(id).await.as_str(), kit.slots(id).await.as_str()), ("released", "available"));
    assert_eq!((kit.meters(id, "open").await, kit.meters(id, "close").await), (1, 1));
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn a_machine_is_installed_anew_when_the_product_says_so_and_a_failed_installation_is_begun_again() {
    let kit = Kit::new().await;
    kit.test.set_global_policy("allocation.isolation_model", "\"full-reimage\"").await;
    let id = kit.active(MACHINE).await;
    release(&kit, id).await;
    kit.reimager.fail_next(1);
    assert_eq!(kit.drive(&id.to_string()).await, "succeeded");
    assert_eq!(kit.reimager.keys().len(), 2);

    let id = kit.active(MACHINE).await;
    release(&kit, id).await;
    kit.reimager.fail_next(3);
    assert_eq!(kit.drive(&id.to_string()).await, "stuck");
    assert_eq!(kit.reason(id).await, "the machine could not be reinstalled");
    assert_eq!(kit.slots(id).await, "cleanup_blocked");
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn a_slice_whose_disks_were_not_all_wiped_is_not_clean() {
    let kit = Kit::new().await;
    let id = kit.active(SLICE).await;
    release(&kit, id).await;
    let released =
        ReleasedVm { machine_removed: true, disks_wiped: 1, devices_reset: 2, lease_removed: true };
    kit.ends(TaskType::VmRelease, vec![well(released)]);
    assert_eq!(kit.drive(&id.to_string()).await, "stuck");
    assert_eq!(kit.reason(id).await, "the machine could not prove that it is clean");
    assert_eq!(kit.slots(id).await, "cleanup_blocked");
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn who_was_let_in_while_the_machine_was_made_has_access_when_it_is_active() {
    let kit = Kit::new().await;
    for (sku, saga) in [(MACHINE, "provision_machine"), (SLICE, "provision_slice")] {
        let id = kit.launch(sku).await;
        until_it_waits(&kit, saga).await;
        grant(&kit, id).await;
        assert_eq!(kit.drive(&id.to_string()).await, "succeeded");
        assert_eq!((kit.state(id).await.as_str(), keys_behind(&kit, id).await), ("active", 0));
    }
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn keys_that_change_while_others_are_on_their_way_follow_in_the_same_run() {
    let kit = Kit::new().await;
    let id = kit.active(SLICE).await;
    grant(&kit, id).await;
    until_it_waits(&kit, "access").await;
    ungrant(&kit, id).await;
    assert_eq!(kit.drive(&format!("{id}/access")).await, "succeeded");
    assert_eq!(keys_behind(&kit, id).await, 0);
    assert_eq!(kit.tasks(id, "slice.vm_authorized_keys").await, 2);
    let runs = format!("SELECT count(*) FROM saga_runs WHERE subject = '{id}/access'");
    assert_eq!(kit.one::<i64>(&runs).await, 1);
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn a_restart_that_fails_leaves_the_allocation_active_and_says_so() {
    let kit = Kit::new().await;
    for (sku, kind) in [(MACHINE, TaskType::Reboot), (SLICE, TaskType::VmRestart)] {
        let id = kit.active(sku).await;
        for (ending, told) in
            [(Some(failed(FailureCode::Driver, "no")), "restart_failed"), (None, "restarted")]
        {
            kit.clock.advance(TimeDelta::seconds(1));
            let mut tx = kit.as_creator().await;
            allocation_restart(&kit.capacity, &mut tx, kit.asked(id)).await.unwrap();
            tx.commit(None).await.unwrap();
            kit.ends(kind, ending.into_iter().collect());
            kit.drive(&format!("{id}/restart")).await;
            let last = "SELECT name FROM allocation_events WHERE allocation_id =";
            let last = format!("{last} '{}' ORDER BY seq DESC LIMIT 1", id.uuid());
            assert_eq!(
                (kit.one::<String>(&last).await.as_str(), kit.state(id).await.as_str()),
                (told, "active")
            );
        }
    }
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn a_restart_that_waits_for_its_machine_is_called_off_by_a_release() {
    let kit = Kit::new().await;
    let id = kit.active(SLICE).await;
    let mut tx = kit.as_creator().await;
    allocation_restart(&kit.capacity, &mut tx, kit.asked(id)).await.unwrap();
    tx.commit(None).await.unwrap();
    until_it_waits(&kit, "restart").await;
    release(&kit, id).await;
    let called_off =
        tokio::time::timeout(std::time::Duration::from_secs(20), until_it_waits(&kit, "restart"));
    called_off.await.expect("it ends at once");
    let run = format!("SELECT state FROM saga_runs WHERE subject = '{id}/restart'");
    assert_eq!(kit.one::<String>(&run).await, "undone");
    let open = "SELECT count(*) FROM node_tasks WHERE state IN ('queued', 'dispatched', 'running')";
    assert_eq!(kit.one::<i64>(open).await, 0, "the machine is not restarted under its next user");
    assert_eq!(kit.drive(&id.to_string()).await, "succeeded");
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn an_order_that_is_a_day_old_does_nothing_and_says_so() {
    let kit = Kit::new().await;
    let id = kit.active(SLICE).await;
    grant(&kit, id).await;
    kit.clock.advance(TimeDelta::hours(25));
    assert_eq!(kit.drive(&format!("{id}/access")).await, "undone");
    assert_eq!((kit.tasks(id, "slice.vm_authorized_keys").await, keys_behind(&kit, id).await), (0, 1));
    let told = format!(
        "SELECT reason FROM allocation_events WHERE allocation_id = '{}' AND name = 'keys_not_installed'",
        id.uuid()
    );
    let late = "the authorization has expired; request the operation again";
    assert_eq!(kit.one::<String>(&told).await, late);
}

#[tokio::test]
async fn a_project_sees_each_phase_with_its_time_and_nothing_of_the_node() {
    let kit = Kit::new().await;
    let id = kit.active(SLICE).await;
    let phases = format!(
        "SELECT string_agg(name, ' ' ORDER BY seq) FROM allocation_events
         WHERE allocation_id = '{}' AND kind = 'phase' AND duration_ms IS NOT NULL",
        id.uuid()
    );
    let of_node = TaskType::VmProvision.phases().iter().map(|phase| format!("machine.{phase}"));
    let expected: Vec<String> = of_node.chain(["machine".to_owned()]).collect();
    assert_eq!(kit.one::<String>(&phases).await, expected.join(" "));
    let host = format!("SELECT ssh_host || ':' || ssh_port FROM allocations WHERE id = '{}'", id.uuid());
    assert_eq!(kit.one::<String>(&host).await, "203.0.113.9:2201");
    invariants::hold(&kit).await;
}
