//! What operators do with allocations, and what they are left with when a machine is lost.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Tenant, World, invariants};

const SLICE: &str = "h200-sxm-slice";
const MACHINE: &str = "h200-sxm-baremetal-8g";

async fn force(world: &World, id: &str, what: &str, body: Value) -> testkit::Answer {
    world.admin.post(&format!("/api/v1/platform/allocations/{id}/{what}"), body).await
}

/// Nodes that are gone are given up on after a second.
async fn impatient(world: &World) {
    world.policy("capacity.task_seconds", 1).await;
}

async fn fails_to_release(tenant: &Tenant, id: &str) -> Value {
    tenant.until_within(Duration::from_secs(60), id, &["release_failed"]).await
}

#[tokio::test]
async fn a_product_that_is_installed_anew_between_tenants_is() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let policy = "/api/v1/platform/policies/allocation.isolation_model";
    world.admin.put(policy, json!({ "value": "full-reimage" })).await.expect(200);
    let ann = world.tenant("ann").await;
    let id = ann.active(json!({ "sku": MACHINE })).await;
    assert_eq!(ann.get(&id).await["isolation_model"], "full-reimage");
    // What holds for a machine was decided when it was sold.
    world.admin.put(policy, json!({ "value": "user-revoke" })).await.expect(200);
    ann.release(&id).await;
    let phases = ann.event_names(&id, "phase").await;
    let place = |step: &str| phases.iter().position(|phase| phase == step);
    assert!(place("account") < place("reimage") && place("reimage") < place("verify"), "{phases:?}");
    let next = ann.active(json!({ "sku": MACHINE })).await;
    ann.release(&next).await;
    assert!(!ann.event_names(&next, "phase").await.iter().any(|phase| phase == "reimage"));
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn an_operator_ends_an_allocation_and_its_project_reads_why() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(json!({ "sku": SLICE, "gpus": 4 })).await;
    let because = json!({ "reason": "maintenance of the building" });
    force(&world, &id, "force-release", because.clone()).await.expect(202);
    let over = ann.until(&id, "released").await;
    assert_eq!(over["release_cause"], "admin");
    let told = ann.events(&id).await;
    let reasons: Vec<&str> = told.iter().filter_map(|e| e["reason"].as_str()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("maintenance of the building")), "{reasons:?}");
    force(&world, &id, "force-release", because.clone()).await.expect(202);
    assert_eq!(ann.get(&id).await["version"], over["version"], "once is enough");
    // Not for tenants.
    let path = format!("/api/v1/platform/allocations/{id}/force-release");
    let refused = ann.api().post(&path, because).await;
    assert!(matches!(refused.status, 403 | 404), "{}", refused.text);
    assert_eq!(world.free(SLICE).await, 8);
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn what_a_lost_machine_held_is_fenced_until_it_was_cleaned_or_somebody_vouches() {
    let world = World::start_simulated().await;
    let mut nodes = world.simulated(&[("h200-8", 2)]).await;
    let ann = world.tenant("ann").await;
    let [part, other] =
        [ann.active(json!({ "sku": SLICE })).await, ann.active(json!({ "sku": SLICE })).await];
    let whole = ann.active(json!({ "sku": MACHINE })).await;
    impatient(&world).await;
    nodes.kill();
    for id in [&part, &other, &whole] {
        ann.act(id, "release").await.expect(202);
    }
    for id in [&part, &other, &whole] {
        let stuck = fails_to_release(&ann, id).await;
        assert_eq!(stuck["state_reason"], "the machine did not answer in time");
        assert!(stuck["meter_closed_at"].is_string(), "nobody pays for a machine that cannot be cleaned");
        assert!(world.slot_states(id).await.iter().all(|state| state == "cleanup_blocked"));
    }
    invariants::hold(&world.db).await;
    assert_eq!([world.free(SLICE).await, world.free(MACHINE).await], [6, 0], "it is not sold to anybody");

    // Somebody looked, and vouches.
    let word =
        |absent: bool| json!({ "runtime_verified_absent": absent, "reason": "the disk was taken out" });
    force(&world, &part, "force-cleanup", word(false)).await.refused(400, "validation_error");
    force(&world, &part, "force-cleanup", word(true)).await.expect(200);
    assert_eq!(ann.state(&part).await, "released");
    assert_eq!(world.slot_states(&part).await, ["available"]);
    force(&world, &part, "force-cleanup", word(true)).await.refused(409, "invalid_transition");
    // A slot of an allocation that is not over has its own ways.
    let slot = world.allocation(&other).await["slot_ids"][0].as_str().unwrap().to_owned();
    let path = format!("/api/v1/platform/slots/{slot}/force-cleanup");
    world.admin.post(&path, word(true)).await.refused(409, "in_use");

    // The nodes come back: what was not cleaned can be.
    nodes.start();
    world.policy("capacity.task_seconds", 60).await;
    for id in [&other, &whole] {
        ann.act(id, "retry").await.expect(202);
        ann.until(id, "released").await;
    }
    assert_eq!([world.free(SLICE).await, world.free(MACHINE).await], [16, 2]);
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn a_launch_that_can_neither_be_made_nor_taken_back_leaves_slots_to_clean() {
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    nodes.script(
        "[[script]]\ntask = 'slice.vm_provision'\nat = 'after'\n[[script]]\ntask = 'slice.vm_release'\n",
    );
    let id = ann.launch(json!({ "sku": SLICE, "gpus": 2 })).await;
    let failed = ann.until_within(Duration::from_secs(60), &id, &["failed"]).await;
    assert!(failed["meter_opened_at"].is_null(), "{failed}");
    assert_eq!(failed["state_reason"], "the operation failed on the machine");
    assert_eq!(world.slot_states(&id).await, ["cleanup_blocked", "cleanup_blocked"]);
    assert_eq!(world.free(SLICE).await, 6, "nobody gets slots with somebody's remains");
    invariants::hold(&world.db).await;

    nodes.script("");
    let slot = world.allocation(&id).await["slot_ids"][0].as_str().unwrap().to_owned();
    let path = format!("/api/v1/platform/slots/{slot}/cleanup");
    let begun = world.admin.post(&path, json!({})).await.expect(202);
    assert_eq!(begun["slot_ids"].as_array().map(Vec::len), Some(2), "they are cleaned together");
    testkit::eventually("the slots are clean", || async {
        (world.slot_states(&id).await == ["available", "available"]).then_some(())
    })
    .await;
    assert_eq!(world.free(SLICE).await, 8);
    invariants::hold(&world.db).await;
}
