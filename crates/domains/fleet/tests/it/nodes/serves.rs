//! A machine that is sold only whole: what stands in the way of parts of it does not stand in its way.

use fleet::{
    model::node::Serves,
    service::{
        nodes::{NodeChange, node_update},
        onboarding::node_discover,
    },
};
use kernel::{Code, ids::NodeId};
use node_proto::catalog::{Blocker, Topology};
use pg::Roles;

use super::world::{World, code, report, succeeded, topology};

const SLICES_ONLY: [&str; 7] = [
    "iommu_disabled",
    "iommu_group_missing",
    "iommu_group_shared",
    "driver_bound",
    "no_nvme",
    "no_fabric_vf",
    "numa_unknown",
];

fn blocker(code: &str) -> Blocker {
    Blocker { code: code.to_owned(), subject: "0000:10:00.0".to_owned(), message: "Because.".to_owned() }
}

/// Two GPUs with the host's driver, without IOMMU, fabric or disks; `more` also stands in the way of the second.
fn with_drivers(more: &[&str]) -> Topology {
    let mut found = topology(2, 0);
    found.blockers = vec![blocker("iommu_disabled"), blocker("kernel_unreadable")];
    for candidate in &mut found.candidates {
        (candidate.iommu_group, candidate.nvme_device) = (None, None);
        (candidate.numa_node, candidate.fabric_vf) = (None, None);
        candidate.blockers = SLICES_ONLY.iter().map(|code| blocker(code)).collect();
    }
    found.candidates[1].blockers.extend(more.iter().map(|code| blocker(code)));
    found
}

async fn serve(world: &World, node: NodeId, serves: Serves) {
    let mut tx = world.write("node.update").await;
    let change = NodeChange { serves: Some(serves), ..NodeChange::default() };
    assert_eq!(node_update(&mut tx, node, change, None).await.unwrap().serves, serves);
    tx.commit(None).await.unwrap();
}

/// The blockers of each slot.
async fn blockers(world: &World, node: NodeId) -> Vec<Vec<String>> {
    let codes = |slot: fleet::model::slot::Slot| slot.blockers.into_iter().map(|b| b.code).collect();
    world.slots(node).await.into_iter().map(codes).collect()
}

/// (free, ready, whole) of the only node, and how many of its slots are offered as the whole machine, and as parts.
async fn offered(world: &World) -> ((i32, i32, bool), i64, i64) {
    let mut admin = world.test.conn(Roles::Admin).await;
    let sql = "SELECT free, ready, whole FROM node_capacity";
    let counts = sqlx::query_as(sql).fetch_one(&mut admin).await.unwrap();
    let candidates =
        "SELECT count(*) FROM fleet_candidates(ROW('gpu', 'H200', 'eu-north', 'any', NULL, '{}',";
    let whole = world.count(&format!("{candidates} 2, true)::slot_request, 1, false, 1, false)")).await;
    (counts, whole, world.count(&format!("{candidates} 1, false)::slot_request, 1, false, 1, false)")).await)
}

#[tokio::test]
async fn a_machine_with_working_drivers_is_sold_whole_and_never_in_parts() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await.id;
    world.onboarding_begin(node).await;
    world.answer(node, succeeded(&with_drivers(&[]))).await;
    assert_eq!(blockers(&world, node).await, vec![SLICES_ONLY.map(str::to_owned).to_vec(); 2]);
    assert_eq!(code(world.approve_all(node).await), Some(Code::Unprocessable));
    // What was found is judged anew, at once.
    serve(&world, node, Serves::Baremetal).await;
    assert_eq!(blockers(&world, node).await, vec![Vec::<String>::new(); 2]);
    let shown: Vec<String> = world.detail(node).await.blockers.into_iter().map(|b| b.code).collect();
    assert_eq!(shown, ["kernel_unreadable"]);
    world.approve_all(node).await.unwrap();
    world.answer(node, succeeded(&report(true))).await;
    assert_eq!(world.state(node).await, "active");
    assert_eq!(offered(&world).await, ((0, 2, true), 2, 0));
    // Never as a part, when it serves anything again: what was found still stands in the way of that.
    serve(&world, node, Serves::Any).await;
    assert_eq!(offered(&world).await, ((0, 0, false), 0, 0));
    assert_eq!(blockers(&world, node).await, vec![SLICES_ONLY.map(str::to_owned).to_vec(); 2]);
    serve(&world, node, Serves::Baremetal).await;
    assert_eq!(offered(&world).await, ((0, 2, true), 2, 0));
}

#[tokio::test]
async fn what_stands_in_the_way_of_the_whole_machine_stays() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await.id;
    serve(&world, node, Serves::Baremetal).await;
    world.onboarding_begin(node).await;
    world.answer(node, succeeded(&with_drivers(&["model_unknown"]))).await;
    assert_eq!(blockers(&world, node).await, [vec![], vec!["model_unknown".to_owned()]]);
    assert_eq!(world.events("nodes.discovered").await[0]["blocked"], 1);
    world.approve_all(node).await.unwrap();
    world.answer(node, succeeded(&report(true))).await;
    assert_eq!(offered(&world).await, ((0, 1, false), 0, 0));
    let mut tx = world.write("node.discover").await;
    node_discover(&world.fleet, &mut tx, node).await.unwrap();
    tx.commit(None).await.unwrap();
    world.answer(node, succeeded(&with_drivers(&[]))).await;
    world.approve_all(node).await.unwrap();
    world.answer(node, succeeded(&report(true))).await;
    assert_eq!(offered(&world).await, ((0, 2, true), 2, 0));
}
