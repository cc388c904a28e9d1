//! Launches of whole machines that are taken back after their account was there: its owner may have been on the machine,
//! so it is sold again only after what follows a release.

use capacity::service::release::allocation_release;
use kernel::ids::AllocationId;
use node_proto::{
    TaskType,
    catalog::{HealthReport, ProbeProfile},
    contract::{Ending, FailureCode},
};
use uuid::Uuid;

use super::{
    invariants,
    kit::{Kit, MACHINE},
    node::failed,
};

/// What ends the launch, at a step from the account on.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Account,
    DriverCheck,
    Release,
}

/// Looks at a cleanup before it is held to wait for something.
const TURNS: usize = 30;

impl Kit {
    async fn node_of(&self, id: AllocationId) -> Uuid {
        self.one(&format!("SELECT node_id FROM allocations WHERE id = '{}'", id.uuid())).await
    }

    /// Gives the node a certificate with which it was heard.
    async fn certified(&self, node: Uuid, serial: &str) {
        let now = self.test.db.ambient().now().to_rfc3339();
        self.sql(&format!(
            "INSERT INTO node_certificates (serial, node_id, authority_id, fingerprint, not_before, not_after, created_at,
                 key_sha256, first_used_at)
             VALUES ('{serial}', '{node}', '{node}', '\\x00', '{now}', timestamptz '{now}' + interval '1 day',
                 greatest('{now}', (SELECT rekey_since FROM nodes WHERE id = '{node}')),
                 sha256(convert_to('{serial}', 'UTF8')), '{now}')"
        ))
        .await;
    }

    /// What the cleanup of its slots is about.
    async fn cleanup_subject(&self, id: AllocationId) -> String {
        let slot = format!(
            "SELECT 'slot_' || replace(slot_ids[1]::text, '-', '') FROM allocations WHERE id = '{}'",
            id.uuid()
        );
        self.one(&slot).await
    }

    /// Has the launch taken back by the fault.
    async fn taken_back(&self, id: AllocationId, fault: Fault) {
        match fault {
            Fault::Account => {
                self.ends(TaskType::ProvisionUser, vec![failed(FailureCode::Driver, "half-way")]);
            }
            Fault::DriverCheck => {
                let profile = ProbeProfile::Light;
                let sick = HealthReport { profile, passed: false, checks: Vec::new(), gpus: Vec::new() };
                let output = serde_json::to_value(sick).unwrap();
                self.ends(TaskType::HealthProbe, vec![Ending::Succeeded { output }]);
            }
            Fault::Release => {
                // The account is there, and the drivers are being looked at.
                while self.tasks(id, "diag.health_probe").await == 0 {
                    self.drive_for(&id.to_string(), 1).await;
                }
                let mut tx = self.as_creator().await;
                allocation_release(&self.capacity, &mut tx, self.asked(id)).await.unwrap();
                tx.commit(None).await.unwrap();
            }
        }
        assert_eq!(self.drive(&id.to_string()).await, "undone", "{fault:?}");
        self.script.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn a_launch_that_is_taken_back_is_followed_by_a_new_key_before_the_machine_is_sold() {
    for fault in [Fault::Account, Fault::DriverCheck, Fault::Release] {
        for reimages in [false, true] {
            let kit = Kit::new().await;
            if reimages {
                kit.test.set_global_policy("allocation.isolation_model", "\"full-reimage\"").await;
            }
            let id = kit.launch(MACHINE).await;
            let node = kit.node_of(id).await;
            kit.certified(node, "aa").await;
            kit.taken_back(id, fault).await;
            // The project is through with it: it holds nothing and pays nothing.
            assert_eq!((kit.claims(id).await, kit.meters(id, "launch_failed").await), (0, 1), "{fault:?}");
            assert_eq!(kit.slots(id).await, "cleaning", "{fault:?}");
            invariants::hold(&kit).await;

            let slot = kit.cleanup_subject(id).await;
            let removals = format!(
                "SELECT count(*) FROM node_tasks WHERE node_id = '{node}' AND task_type = 'allocation.deprovision_user'"
            );
            let removed: i64 = kit.one(&removals).await;
            assert_eq!(kit.drive_for(&slot, TURNS).await, None, "{fault:?}: it waits for a new key");
            assert_eq!(kit.slots(id).await, "cleaning", "{fault:?}");
            let asked = format!(
                "SELECT count(*) FROM allocation_events WHERE allocation_id = '{}' AND name = 'new_key'",
                id.uuid()
            );
            assert_eq!(kit.one::<i64>(&asked).await, 1, "{fault:?}: it is said once");
            assert!(kit.one::<i64>(&removals).await > removed, "{fault:?}: the account is removed before");

            kit.certified(node, "bb").await;
            assert_eq!(kit.drive(&slot).await, "succeeded", "{fault:?}");
            assert_eq!(kit.slots(id).await, "available", "{fault:?}");
            assert_eq!(!kit.reimager.keys().is_empty(), reimages, "{fault:?}");
            let copies = format!(
                "SELECT count(*) FROM node_certificates WHERE serial = 'aa' AND superseded AND node_id = '{node}'"
            );
            assert_eq!(kit.one::<i64>(&copies).await, 1, "{fault:?}");
            invariants::hold(&kit).await;
        }
    }
}

#[tokio::test]
async fn a_probe_that_is_retried_does_not_install_the_machine_again() {
    let kit = Kit::new().await;
    kit.test.set_global_policy("allocation.isolation_model", "\"full-reimage\"").await;
    let id = kit.launch(MACHINE).await;
    kit.taken_back(id, Fault::DriverCheck).await;
    let slot = kit.cleanup_subject(id).await;
    kit.ends(TaskType::HealthProbe, vec![failed(FailureCode::Interrupted, "restarted"); 2]);
    let probes = kit.tasks(id, "diag.health_probe").await;
    assert_eq!(kit.drive(&slot).await, "succeeded");
    assert_eq!(kit.tasks(id, "diag.health_probe").await - probes, 3, "two were retried");
    assert_eq!(kit.reimager.keys().len(), 1);
    assert_eq!(kit.slots(id).await, "available");
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn a_cleanup_that_the_release_before_began_ends() {
    let kit = Kit::new().await;
    kit.test.set_global_policy("allocation.isolation_model", "\"full-reimage\"").await;
    let id = kit.launch(MACHINE).await;
    kit.taken_back(id, Fault::DriverCheck).await;
    let slot = kit.cleanup_subject(id).await;
    kit.sql(&format!("UPDATE saga_runs SET spec_version = 1 WHERE subject = '{slot}'")).await;
    assert_eq!(kit.drive(&slot).await, "succeeded");
    assert_eq!((kit.reimager.keys().len(), kit.slots(id).await.as_str()), (1, "available"));
    invariants::hold(&kit).await;
}

#[tokio::test]
async fn a_launch_that_never_had_an_account_gives_its_machine_back_at_once() {
    let kit = Kit::new().await;
    let id = kit.launch(MACHINE).await;
    kit.certified(kit.node_of(id).await, "aa").await;
    let mut tx = kit.as_creator().await;
    allocation_release(&kit.capacity, &mut tx, kit.asked(id)).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(kit.drive(&id.to_string()).await, "undone");
    assert_eq!(
        (kit.slots(id).await.as_str(), kit.tasks(id, "allocation.provision_user").await),
        ("available", 0)
    );
}

#[tokio::test]
async fn a_node_that_never_makes_a_new_key_is_fenced_with_what_to_do() {
    let kit = Kit::new().await;
    let id = kit.launch(MACHINE).await;
    let node = kit.node_of(id).await;
    kit.certified(node, "aa").await;
    kit.made.contact_keep(kit.made.contact(node.into())).await;
    kit.taken_back(id, Fault::DriverCheck).await;
    let slot = format!("SELECT slot_ids[1] FROM allocations WHERE id = '{}'", id.uuid());
    let slot: Uuid = kit.one(&slot).await;
    let subject = kernel::ids::SlotId::from(slot).to_string();
    let mut end = None;
    for _ in 0..10 {
        end = kit.drive_for(&subject, TURNS).await;
        if end.is_some() {
            break;
        }
        kit.clock.advance(chrono::TimeDelta::hours(25));
    }
    assert_eq!(end.as_deref(), Some("stuck"));
    let why: String =
        kit.one(&format!("SELECT cleanup_reason FROM node_resource_slots WHERE id = '{slot}'")).await;
    assert!(why.contains("node_key_pending") && why.contains("repair-token"), "{why}");
    assert_eq!(kit.reason(id).await, "the machine failed its health check", "tenants read nothing of it");
}
