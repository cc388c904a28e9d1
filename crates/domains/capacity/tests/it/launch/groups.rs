//! Groups: all or none.

use capacity::service::groups::member_failed;
use http::StatusCode;
use kernel::ids::{AllocationId, GroupId};
use serde_json::json;

use super::{
    invariants,
    world::{World, slice},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_does_not_fit_whole_leaves_nothing() {
    let world = World::new().await;
    world.region("eu").await;
    for _ in 0..3 {
        world.node("eu", 8).await;
    }
    let group = |members: u32| json!({ "sku": "h200-sxm-baremetal-8g", "members": members, "name": "gang" });
    let refused = world.post(world.tenant, "allocation-groups", group(4)).await;
    assert_eq!(refused.code(), "sku_unavailable", "{refused:?}");
    assert_eq!(refused.body["error"]["details"]["smallest_change"], json!({ "change": "count", "count": 3 }));
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 0);
    assert_eq!(world.count("SELECT count(*) FROM allocation_groups").await, 0);
    assert_eq!(world.count("SELECT count(*) FROM node_resource_slots WHERE state <> 'available'").await, 0);
    for bad in [0, 65] {
        assert_eq!(
            world.post(world.tenant, "allocation-groups", group(bad)).await.code(),
            "validation_error"
        );
    }

    let made = world.post(world.tenant, "allocation-groups", group(3)).await;
    assert_eq!(made.status, StatusCode::ACCEPTED, "{made:?}");
    assert_eq!((&made.body["state"], &made.body["members"]), (&json!("requested"), &json!(3)));
    let names: Vec<_> =
        made.body["allocations"].as_array().unwrap().iter().map(|a| a["name"].clone()).collect();
    assert_eq!(names, ["gang-1", "gang-2", "gang-3"]);
    let found = world.get(world.tenant, &format!("allocation-groups/{}", made.id())).await;
    assert_eq!(found.body["state"], "requested");
    assert_eq!(found.body["allocations"].as_array().unwrap().len(), 3);
    let listed = world.get(world.tenant, "allocation-groups").await;
    assert_eq!(listed.body["items"][0]["id"], made.body["id"]);
    let members = world.get(world.tenant, &format!("allocations?group_id={}", made.id())).await;
    assert_eq!(members.body["items"].as_array().unwrap().len(), 3);
    invariants::hold(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_that_race_get_all_or_nothing() {
    let world = World::new().await;
    world.region("eu").await;
    for _ in 0..4 {
        world.node("eu", 4).await;
    }
    let running: Vec<_> = (0..24)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move {
                let mut body = slice(2);
                body["members"] = json!(3);
                world.post(world.tenant, "allocation-groups", body).await
            })
        })
        .collect();
    let mut won = 0;
    for one in running {
        let answer = one.await.unwrap();
        match answer.status {
            StatusCode::ACCEPTED => won += 1,
            _ => assert_eq!(answer.code(), "sku_unavailable", "{answer:?}"),
        }
    }
    // Eight pairs are free, and three members take three of them.
    assert_eq!(won, 2);
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 6);
    invariants::hold(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_member_fails_the_others_are_taken_back_and_once_only() {
    let world = World::new().await;
    world.region("eu").await;
    world.node("eu", 8).await;
    let mut body = slice(1);
    body["members"] = json!(3);
    let made = world.post(world.tenant, "allocation-groups", body).await;
    let group: GroupId = made.id().parse().unwrap();
    let failed: AllocationId = made.body["allocations"][0]["id"].as_str().unwrap().parse().unwrap();
    for _ in 0..2 {
        let mut tx = world.as_system().await;
        member_failed(&world.capacity, &mut tx, group, failed).await.unwrap();
        tx.commit(None).await.unwrap();
    }
    let cancelled = "SELECT count(*) FROM saga_runs WHERE cancel_reason IS NOT NULL";
    assert_eq!(world.count(cancelled).await, 2);
    let own = format!("{cancelled} AND subject = '{failed}'");
    assert_eq!(world.count(&own).await, 0, "the failed one is taken back by its own workflow");
    assert_eq!(world.count("SELECT count(*) FROM allocations WHERE release_cause = 'group'").await, 2);
    assert_eq!(world.count("SELECT count(*) FROM allocation_events WHERE name = 'cancel'").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_released_by_whoever_made_it() {
    let world = World::new().await;
    world.region("eu").await;
    world.node("eu", 8).await;
    let mut body = slice(1);
    body["members"] = json!(2);
    let made = world.post(world.tenant, "allocation-groups", body).await;
    let colleague = world.joins(world.tenant, "colleague").await;
    let path = format!("allocation-groups/{}/release", made.id());
    assert_eq!(world.post(colleague, &path, json!({})).await.code(), "ownership_required");
    let other = world.another_tenant("second").await;
    assert_eq!(world.post(other, &path, json!({})).await.code(), "not_found");
    let released = world.post(world.tenant, &path, json!({})).await;
    assert_eq!(released.status, StatusCode::ACCEPTED, "{released:?}");
    let cancelled = "SELECT count(*) FROM saga_runs WHERE cancel_reason IS NOT NULL";
    assert_eq!(world.count(cancelled).await, 2);
}
