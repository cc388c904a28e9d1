//! Every step of every workflow fails, repeats, times out and is interrupted, forwards and back; after each the end is
//! what it must be, and nothing that must hold is broken.

use std::sync::Arc;

use async_trait::async_trait;
use capacity::service::{
    access::grant_create,
    release::{allocation_release, allocation_restart},
    slot_cleanup::slot_cleanup_retry,
};
use kernel::{
    Failure,
    ids::{AllocationId, SagaRunId, SlotId},
};
use node_proto::{TaskType, contract::FailureCode};
use pg::{Db, Wake};
use saga::{
    RunEnd, Saga,
    conformance::{Suspension, World, run_all},
};
use uuid::Uuid;

use super::{
    invariants,
    kit::{Kit, MACHINE, SLICE},
    node::failed,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum About {
    Provision,
    Release,
    Restart,
    Access,
    Cleanup,
}

struct Under {
    kit: Arc<Kit>,
    about: About,
    sku: &'static str,
    saga: Arc<dyn Saga>,
}

impl Under {
    async fn test(about: About, sku: &'static str, saga: &str) {
        let kit = Kit::new().await;
        if about == About::Release {
            kit.test.set_global_policy("allocation.isolation_model", "\"full-reimage\"").await;
        }
        let saga = kit.saga(saga);
        let under = Self { kit, about, sku, saga };
        run_all(&under).await.unwrap_or_else(|violation| panic!("{violation}"));
    }

    /// A launch that failed and could not be taken back.
    async fn fenced(&self) -> AllocationId {
        let kit = &self.kit;
        let id = kit.launch(self.sku).await;
        for kind in
            [TaskType::ProvisionUser, TaskType::DeprovisionUser, TaskType::VmProvision, TaskType::VmRelease]
        {
            kit.ends(kind, vec![failed(FailureCode::Driver, "no")]);
        }
        assert_eq!(kit.drive(&id.to_string()).await, "stuck");
        kit.script.lock().unwrap().clear();
        id
    }

    async fn subject(&self) -> Result<String, Failure> {
        let kit = &self.kit;
        if self.about == About::Provision {
            return Ok(kit.launch(self.sku).await.to_string());
        }
        if self.about == About::Cleanup {
            let id = self.fenced().await.uuid();
            let slot: Uuid = kit.one(&format!("SELECT slot_ids[1] FROM allocations WHERE id = '{id}'")).await;
            let mut tx = kit.as_operator().await;
            let cleanup = slot_cleanup_retry(&mut tx, SlotId::from(slot)).await?;
            tx.commit(None).await?;
            return Ok(cleanup.slot_ids[0].to_string());
        }
        let id = kit.active(self.sku).await;
        let mut tx = kit.as_creator().await;
        let subject = match self.about {
            About::Release => allocation_release(&kit.capacity, &mut tx, kit.asked(id)).await?.subject(),
            About::Restart => {
                allocation_restart(&kit.capacity, &mut tx, kit.asked(id)).await?.restart_subject()
            }
            _ => {
                grant_create(&kit.capacity, &mut tx, kit.asked(id), kit.creator, kit.other).await?;
                format!("{id}/access")
            }
        };
        tx.commit(None).await?;
        Ok(subject)
    }

    /// Whether a launch that was taken back got as far as to use its machine.
    async fn cleans_after(&self, id: AllocationId) -> bool {
        self.sku == MACHINE
            && self.kit.one(&format!(
                "SELECT EXISTS (SELECT FROM allocation_events WHERE allocation_id = '{}' AND to_state = 'provisioning')",
                id.uuid()
            ))
            .await
    }

    async fn ended_as_it_must(&self, id: AllocationId, end: RunEnd) -> Result<(), String> {
        let kit = &self.kit;
        let (open, gone) = (kit.meters(id, "open").await, kit.meters(id, "launch_failed").await);
        let stands = (kit.state(id).await, kit.slots(id).await, kit.claims(id).await > 0, open, gone);
        let stands = (stands.0.as_str(), stands.1.as_str(), stands.2, stands.3, stands.4);
        let must = match (self.about, end) {
            (About::Provision, RunEnd::Succeeded) => ("active", "in_use", true, 1, 0),
            // Somebody may have been on the whole machine.
            (About::Provision, RunEnd::Undone) if self.cleans_after(id).await => {
                ("failed", "cleaning", false, 0, 1)
            }
            (About::Provision, RunEnd::Undone) => ("failed", "available", false, 0, 1),
            (About::Provision, RunEnd::Stuck) => ("failed", "cleanup_blocked", false, 0, 1),
            (About::Release, RunEnd::Succeeded) => ("released", "available", false, 1, 0),
            (About::Release, _) => ("release_failed", "cleanup_blocked", true, 1, 0),
            (About::Restart | About::Access, _) => ("active", "in_use", true, 1, 0),
            (About::Cleanup, RunEnd::Succeeded) => ("failed", "available", false, 0, 1),
            (About::Cleanup, _) => ("failed", "cleanup_blocked", false, 0, 1),
        };
        if stands != must {
            return Err(format!("it stands so: {stands:?}, and must so: {must:?}"));
        }
        if stands.1 == "cleaning" {
            let slot = format!("SELECT slot_ids[1] FROM allocations WHERE id = '{}'", id.uuid());
            let slot = SlotId::from(kit.one::<Uuid>(&slot).await).to_string();
            let end = (kit.drive(&slot).await, kit.slots(id).await);
            let clean = end == ("succeeded".to_owned(), "available".to_owned());
            return if clean { Ok(()) } else { Err(format!("it was cleaned so: {end:?}")) };
        }
        if (self.about, end) == (About::Access, RunEnd::Succeeded) {
            let behind = "SELECT access_version - installed_access FROM allocations WHERE id =";
            let behind: i64 = kit.one(&format!("{behind} '{}'", id.uuid())).await;
            return if behind == 0 { Ok(()) } else { Err("the machine has not the newest keys".to_owned()) };
        }
        Ok(())
    }
}

#[async_trait]
impl World for Under {
    fn db(&self) -> Db {
        self.kit.test.db.clone()
    }

    fn wake(&self) -> Wake {
        self.kit.wake.clone()
    }

    fn saga(&self) -> Arc<dyn Saga> {
        self.saga.clone()
    }

    async fn start(&self) -> Result<SagaRunId, Failure> {
        let subject = self.subject().await?;
        Ok(self.kit.run_of(&subject).await)
    }

    async fn answer(&self, waiting: &Suspension) -> Result<(), Failure> {
        self.kit.answer(&waiting.key).await;
        Ok(())
    }

    async fn check(&self, run: SagaRunId, end: RunEnd) -> Result<(), String> {
        let input = format!("SELECT input->>'allocation_id' FROM saga_runs WHERE id = '{}'", run.uuid());
        let id: AllocationId = self.kit.one::<String>(&input).await.parse().unwrap();
        self.ended_as_it_must(id, end).await?;
        invariants::broken(&self.kit).await
    }
}

#[tokio::test]
async fn provisioning_a_machine_bears_every_fault() {
    Under::test(About::Provision, MACHINE, "provision_machine").await;
}

#[tokio::test]
async fn provisioning_a_slice_bears_every_fault() {
    Under::test(About::Provision, SLICE, "provision_slice").await;
}

#[tokio::test]
async fn releasing_a_machine_bears_every_fault() {
    Under::test(About::Release, MACHINE, "release_machine").await;
}

#[tokio::test]
async fn releasing_a_slice_bears_every_fault() {
    Under::test(About::Release, SLICE, "release_slice").await;
}

#[tokio::test]
async fn restarting_a_machine_bears_every_fault() {
    Under::test(About::Restart, MACHINE, "restart").await;
}

#[tokio::test]
async fn restarting_a_slice_bears_every_fault() {
    Under::test(About::Restart, SLICE, "restart").await;
}

#[tokio::test]
async fn installing_keys_bears_every_fault() {
    Under::test(About::Access, SLICE, "access").await;
}

#[tokio::test]
async fn cleaning_what_a_launch_left_bears_every_fault() {
    Under::test(About::Cleanup, MACHINE, "cleanup").await;
}

#[tokio::test]
async fn cleaning_what_a_slice_left_bears_every_fault() {
    Under::test(About::Cleanup, SLICE, "cleanup").await;
}
