//! A node that is to make a new key says so to operators, until it has.

use chrono::TimeDelta;
use fleet::service::node_identity::{Rekey, first_use, node_rekey};

use super::{
    enrolment::renewal,
    world::{World, text},
};

#[tokio::test]
async fn operators_see_that_a_node_waits_for_a_new_key_and_what_to_do_if_it_does_not_come() {
    let world = World::new().await;
    let node = world.active("gpu-01", 2).await;
    first_use(&world.fleet, node.id, &world.serial(node.id).await).await.unwrap();
    world.report_accept(node.id).await;
    world.sql("UPDATE node_resource_slots SET state = 'reserved'").await;
    world.sql("UPDATE node_resource_slots SET state = 'in_use'").await;
    world.sql("UPDATE node_resource_slots SET state = 'cleaning' WHERE slot_index = 0").await;
    let shown = async || -> Vec<(String, String)> {
        let blockers = world.detail(node.id).await.blockers;
        blockers.into_iter().map(|blocker| (blocker.code, blocker.message)).collect()
    };
    assert_eq!(shown().await, []);

    world.pass(TimeDelta::seconds(1));
    let began = world.now();
    let asked = async || {
        let mut tx = world.write("allocation.release_run").await;
        let asked = node_rekey(&mut tx, node.id, began).await.unwrap();
        tx.record("node", node.id, None::<&()>, None::<&()>).unwrap();
        tx.commit(None).await.unwrap();
        asked
    };
    assert_eq!((asked().await, asked().await), (Rekey::Asked, Rekey::Waiting));
    let blockers = shown().await;
    assert!(blockers.len() == 1 && blockers[0].0 == "node_key_pending", "{blockers:?}");

    for word in ["at its next contact", "gpuaas nodes repair-token"] {
        assert!(blockers[0].1.contains(word), "{word}: {blockers:?}");
    }
    // The slot that is cleaned says what it waits for; the other has no part in it.
    let codes = |slot: &fleet::model::slot::Slot| {
        let blockers = serde_json::to_value(&slot.blockers).unwrap();
        blockers.as_array().unwrap().iter().map(|blocker| text(&blocker["code"])).collect::<Vec<_>>()
    };
    let slots: Vec<Vec<String>> = world.slots(node.id).await.iter().map(codes).collect();
    assert_eq!(slots, [vec!["node_key_pending".to_owned()], vec![]]);

    // It renews, and is heard.
    world.pass(TimeDelta::seconds(1));
    renewal(&world, node.id).await.unwrap();
    assert_eq!(shown().await.len(), 1, "nobody has heard the node with it");
    first_use(&world.fleet, node.id, &world.serial(node.id).await).await.unwrap();
    assert_eq!(shown().await, []);
    assert_eq!(asked().await, Rekey::Done);
}
