use fleet::model::node::NodeState;
use std::collections::BTreeMap;

use fleet::{
    model::text::{EligibleSku, Hostname, Labels, RegionCode},
    service::{
        history::node_history,
        nodes::{
            NodeChange, NodeFilter, NodeRequest, node_cordon, node_create, node_list, node_uncordon,
            node_update,
        },
        pools::{pool_create, pool_delete},
        regions::{region_create, region_delete},
    },
};
use kernel::{Code, PageQuery, text::Name};

use super::world::{REGION, World, code};

fn labels(rack: &str) -> Labels {
    Labels::parse(BTreeMap::from([("rack".to_owned(), rack.to_owned())])).unwrap()
}

async fn hostnames(world: &World, filter: NodeFilter<'_>) -> Vec<String> {
    let mut names: Vec<String> = node_list(&mut world.read().await, filter, &PageQuery::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .map(|summary| summary.node.hostname)
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn places_that_are_in_use_stay() {
    let world = World::new().await;
    let region = RegionCode::parse(REGION).unwrap();
    let mut tx = world.write("pool.create").await;
    let pool = pool_create(&mut tx, region.clone(), Name::parse("h200").unwrap(), None).await.unwrap();
    tx.commit(None).await.unwrap();
    let (node, _) = world.node("gpu-01").await;
    let mut tx = world.write("node.update").await;
    let into = NodeChange { pool: Some(Some(pool.id)), ..NodeChange::default() };
    assert_eq!(node_update(&mut tx, node.id, into, None).await.unwrap().pool_id, Some(pool.id));
    tx.commit(None).await.unwrap();
    let mut tx = world.write("pool.delete").await;
    assert_eq!(code(pool_delete(&mut tx, pool.id, None).await), Some(Code::InUse));
    drop(tx);
    let mut tx = world.write("region.delete").await;
    assert_eq!(code(region_delete(&mut tx, &region, None).await), Some(Code::InUse));
    drop(tx);
    let mut tx = world.write("node.update").await;
    let out = NodeChange { pool: Some(None), ..NodeChange::default() };
    assert_eq!(node_update(&mut tx, node.id, out, None).await.unwrap().pool_id, None);
    pool_delete(&mut tx, pool.id, None).await.unwrap();
    let spare = RegionCode::parse("spare").unwrap();
    region_create(&mut tx, spare.clone(), Name::parse("Spare").unwrap()).await.unwrap();
    assert_eq!(code(region_delete(&mut tx, &spare, Some(7)).await), Some(Code::Conflict));
    region_delete(&mut tx, &spare, Some(1)).await.unwrap();
    tx.commit(None).await.unwrap();
}

#[tokio::test]
async fn a_node_is_made_once_in_a_region_that_exists_and_in_a_pool_of_it() {
    let world = World::new().await;
    let mut tx = world.write("pool.create").await;
    let elsewhere = RegionCode::parse("us-west").unwrap();
    region_create(&mut tx, elsewhere.clone(), Name::parse("West").unwrap()).await.unwrap();
    let pool = pool_create(&mut tx, elsewhere, Name::parse("h200").unwrap(), None).await.unwrap();
    tx.commit(None).await.unwrap();
    let request = |hostname: &str, region: &str, pool| NodeRequest {
        hostname: Hostname::parse(hostname).unwrap(),
        region: RegionCode::parse(region).unwrap(),
        pool,
        labels: Labels::default(),
        sku_eligibility: vec![
            EligibleSku::parse("b").unwrap(),
            EligibleSku::parse("a").unwrap(),
            EligibleSku::parse("b").unwrap(),
        ],
        serves: Default::default(),
        simulated: false,
        ssh: Default::default(),
    };
    for (hostname, region, pool, expected) in [
        ("gpu-01", "nowhere", None, Code::ValidationError),
        ("gpu-01", REGION, Some(pool.id), Code::ValidationError),
        ("gpu-01", REGION, Some(world.test.db.ambient().id()), Code::ValidationError),
    ] {
        let mut tx = world.write("node.create").await;
        let made = node_create(&world.fleet, &mut tx, request(hostname, region, pool)).await;
        assert_eq!(code(made.map(|_| ())), Some(expected), "{region}");
    }
    let mut tx = world.write("node.create").await;
    let (node, _) = node_create(&world.fleet, &mut tx, request("gpu-01", REGION, None)).await.unwrap();
    assert_eq!(node.sku_eligibility, ["a", "b"]);
    tx.commit(None).await.unwrap();
    let mut tx = world.write("node.create").await;
    let again = node_create(&world.fleet, &mut tx, request("gpu-01", REGION, None)).await;
    assert_eq!(code(again.map(|_| ())), Some(Code::AlreadyExists));
}

#[tokio::test]
async fn nodes_are_found_by_what_is_known_of_them() {
    let world = World::new().await;
    let (first, _) = world.node("gpu-01").await;
    let (second, _) = world.node_like("gpu-02", true).await;
    world.enrolled("gpu-03").await;
    let mut tx = world.write("node.update").await;
    let change = NodeChange { labels: Some(labels("r7")), ..NodeChange::default() };
    let updated = node_update(&mut tx, second.id, change, Some(second.version)).await.unwrap();
    let stale = NodeChange { labels: Some(labels("r8")), ..NodeChange::default() };
    assert_eq!(
        code(node_update(&mut tx, second.id, stale, Some(second.version)).await),
        Some(Code::Conflict)
    );
    assert_eq!(updated.version, second.version + 1);
    tx.commit(None).await.unwrap();
    let of = async |filter| hostnames(&world, filter).await;
    assert_eq!(of(NodeFilter { label: Some(("rack", "r7")), ..Default::default() }).await, ["gpu-02"]);
    assert!(of(NodeFilter { label: Some(("rack", "r8")), ..Default::default() }).await.is_empty());
    assert_eq!(of(NodeFilter { simulated: Some(false), ..Default::default() }).await, ["gpu-01", "gpu-03"]);
    assert_eq!(of(NodeFilter { state: Some(NodeState::Enrolling), ..Default::default() }).await, ["gpu-03"]);
    assert_eq!(of(NodeFilter { region: Some("us-west"), ..Default::default() }).await, [""; 0]);
    assert_eq!(of(NodeFilter { hostname: Some("gpu-01"), ..Default::default() }).await, ["gpu-01"]);
    world.tamper(&format!("UPDATE nodes SET state = 'deleted' WHERE id = '{}'", first.id.uuid())).await;
    assert_eq!(of(NodeFilter::default()).await, ["gpu-02", "gpu-03"], "the deleted are gone");
    assert_eq!(of(NodeFilter { state: Some(NodeState::Deleted), ..Default::default() }).await, ["gpu-01"]);
    let size: PageQuery = serde_json::from_value(serde_json::json!({ "page_size": 1 })).unwrap();
    let page = node_list(&mut world.read().await, NodeFilter::default(), &size).await.unwrap();
    assert!(page.items.len() == 1 && page.next_cursor.is_some());
}

#[tokio::test]
async fn a_cordon_stops_placement_and_no_state_changes() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    let mut tx = world.write("node.cordon").await;
    let cordoned = node_cordon(&mut tx, node.id, "a cable is loose", None).await.unwrap();
    assert_eq!(
        (cordoned.cordon_reason.as_deref(), cordoned.state),
        (Some("a cable is loose"), NodeState::Active)
    );
    assert_eq!(node_uncordon(&mut tx, node.id, None).await.unwrap().cordon_reason, None);
    assert_eq!(code(node_uncordon(&mut tx, node.id, None).await), Some(Code::InvalidTransition));
    tx.commit(None).await.unwrap();
}

#[tokio::test]
async fn history_is_read_newest_first_page_by_page() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    let mut steps = Vec::new();
    let mut query = serde_json::json!({ "page_size": 1 });
    loop {
        let page: PageQuery = serde_json::from_value(query).unwrap();
        let page = node_history(&mut world.read().await, node.id, &page).await.unwrap();
        steps.extend(page.items.into_iter().map(|entry| entry.event));
        let Some(cursor) = page.next_cursor else { break };
        query = serde_json::json!({ "page_size": 1, "cursor": cursor });
    }
    assert_eq!(steps, ["activate", "enroll"]);
}
