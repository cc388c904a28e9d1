//! Steps of slots with somebody's work in them, taken by workflows.

use fleet::api::{
    node_inventories, slot_facts, slots_block, slots_clean, slots_cleaned, slots_force_cleaned, slots_occupy,
    slots_retry_cleaning, slots_unreserve,
};
use kernel::{Code, Failure, ids::SlotId};
use uuid::Uuid;

use super::kit::{Kit, node_of};

async fn facts(kit: &Kit, slots: &[SlotId]) -> Vec<(String, Option<String>)> {
    let mut tx = kit.write().await;
    let facts = slot_facts(tx.conn(), slots).await.unwrap();
    tx.roll_back().await;
    facts.into_iter().map(|slot| (slot.state.to_string(), slot.cleanup_reason)).collect()
}

fn all(state: &str, reason: Option<&str>, count: usize) -> Vec<(String, Option<String>)> {
    vec![(state.to_owned(), reason.map(str::to_owned)); count]
}

fn is_conflict(result: &Result<(), Failure>) -> bool {
    matches!(result, Err(Failure::Problem(problem)) if problem.code == Code::Conflict)
}

#[tokio::test]
async fn slots_go_from_reserved_through_use_and_cleaning_to_free_again() {
    let kit = Kit::new().await;
    let nodes = kit.nodes(1, 4).await;
    let slots = kit.slot_ids(nodes[0]).await;
    kit.test.sql("UPDATE node_resource_slots SET state = 'reserved'").await;
    let mut tx = kit.write().await;
    slots_unreserve(&mut tx, &slots[..2]).await.unwrap();
    slots_occupy(&mut tx, &slots[2..]).await.unwrap();
    slots_clean(&mut tx, &slots[2..]).await.unwrap();
    slots_block(&mut tx, &slots[2..], "the disk\u{7} stayed busy").await.unwrap();
    tx.commit(None).await.unwrap();
    let blocked = facts(&kit, &slots[2..]).await;
    assert_eq!(blocked[0].0, "cleanup_blocked");
    assert!(
        blocked[0]
            .1
            .as_deref()
            .is_some_and(|reason| reason.starts_with("the disk") && !reason.contains('\u{7}'))
    );
    kit.assert_counted().await;
    let mut tx = kit.write().await;
    slots_retry_cleaning(&mut tx, &slots[2..]).await.unwrap();
    slots_cleaned(&mut tx, &slots[2..3]).await.unwrap();
    slots_block(&mut tx, &slots[3..], "again").await.unwrap();
    slots_force_cleaned(&mut tx, &slots[3..]).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(facts(&kit, &slots).await, all("available", None, 4));
    kit.assert_counted().await;
}

#[tokio::test]
async fn a_step_takes_all_slots_or_none() {
    let kit = Kit::new().await;
    let nodes = kit.nodes(1, 4).await;
    let slots = kit.slot_ids(nodes[0]).await;
    kit.test.sql("UPDATE node_resource_slots SET state = 'reserved' WHERE slot_index < 3").await;
    let mut tx = kit.write().await;
    assert!(is_conflict(&slots_occupy(&mut tx, &slots).await));
    assert!(is_conflict(&slots_occupy(&mut tx, &[slots[0], SlotId::from(Uuid::nil())]).await));
    assert!(is_conflict(&slots_clean(&mut tx, &slots[..1]).await));
    assert!(is_conflict(&slots_cleaned(&mut tx, &slots[..1]).await));
    assert!(is_conflict(&slots_block(&mut tx, &slots[..1], "no").await));
    assert!(is_conflict(&slots_retry_cleaning(&mut tx, &slots[..1]).await));
    assert!(is_conflict(&slots_force_cleaned(&mut tx, &slots[..1]).await));
    assert!(is_conflict(&slots_unreserve(&mut tx, &slots[3..]).await));
    // Named twice is named once, and nothing is no problem.
    slots_occupy(&mut tx, &[slots[0], slots[0]]).await.unwrap();
    slots_occupy(&mut tx, &[]).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(facts(&kit, &slots[..1]).await, all("in_use", None, 1));
    assert_eq!(facts(&kit, &slots[1..3]).await, all("reserved", None, 2));
}

#[tokio::test]
async fn what_nodes_say_is_read_page_by_page() {
    let kit = Kit::new().await;
    let nodes = kit.nodes(3, 1).await;
    kit.test
        .sql(&format!(
            "INSERT INTO node_contacts (node_id, first_seen_at, last_seen_at, agent_version, contract, inventory)
             VALUES ('{}', now(), now(), '1.0.0', '1.1', '{{\"users\": [\"u1\"], \"machines\": [\"alloc_a\"]}}')",
            nodes[1]
        ))
        .await;
    let mut tx = kit.write().await;
    let page = node_inventories(tx.conn(), None, 2).await.unwrap();
    assert_eq!(
        page.iter().map(|node| node.node_id).collect::<Vec<_>>(),
        [node_of(nodes[0]), node_of(nodes[1])]
    );
    assert!(page[0].last_seen_at.is_none() && page[0].inventory.users.is_empty());
    assert!(page[1].last_seen_at.is_some());
    assert_eq!(
        (page[1].inventory.users.as_slice(), page[1].inventory.machines.len()),
        (&["u1".to_owned()][..], 1)
    );
    let rest = node_inventories(tx.conn(), Some(node_of(nodes[1])), 2).await.unwrap();
    assert_eq!(rest.len(), 1);
    tx.roll_back().await;
}
