//! Many at once: the database decides, and nothing leaks.

use http::StatusCode;
use serde_json::json;

use super::{
    invariants,
    world::{World, at_once, refused, slice, whole, won},
};

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_that_want_the_last_slot_one_gets_it() {
    let world = World::new().await;
    world.region("eu").await;
    world.node("eu", 1).await;
    let other = world.another_tenant("second").await;
    let requests = (0..100).map(|n| (if n % 2 == 0 { world.tenant } else { other }, slice(1))).collect();
    let answers = at_once(&world, requests).await;
    assert_eq!(won(&answers), 1, "{answers:?}");
    assert_eq!(refused(&answers, "sku_unavailable"), 99, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != StatusCode::ACCEPTED) {
        assert_eq!(answer.status, StatusCode::CONFLICT);
        assert!(answer.body["error"]["details"]["reason"].is_string(), "{answer:?}");
    }
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 1);
    assert_eq!(world.count("SELECT count(*) FROM saga_runs").await, 1);
    invariants::hold(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_goes_whole_or_by_slots_and_never_both() {
    let world = World::new().await;
    let other = world.another_tenant("second").await;
    for round in 0..6 {
        let region = format!("r{round}");
        world.region(&region).await;
        let node = world.node(&region, 8).await;
        let mut requests = Vec::new();
        for n in 0..40 {
            let mut body = if (n + round) % 2 == 0 { whole() } else { slice(1) };
            body["region"] = json!(region);
            requests.push((if n % 4 < 2 { world.tenant } else { other }, body));
        }
        let answers = at_once(&world, requests).await;
        let taken = world
            .count(&format!(
                "SELECT count(*) FROM capacity_claims WHERE slot_id IS NOT NULL AND node_id = '{}'",
                node.uuid()
            ))
            .await;
        assert_eq!(taken, 8, "all of it is sold");
        assert!([1, 8].contains(&won(&answers)), "{answers:?}");
        assert_eq!(refused(&answers, "sku_unavailable"), 40 - won(&answers), "{answers:?}");
        invariants::hold(&world).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_at_once_do_not_exceed_what_a_person_may_hold() {
    let world = World::new().await;
    world.test.set_global_policy("allocation.max_concurrent_per_user", "10").await;
    world.region("eu").await;
    for _ in 0..13 {
        world.node("eu", 8).await;
    }
    let answers = at_once(&world, (0..100).map(|_| (world.tenant, slice(1))).collect()).await;
    assert_eq!((won(&answers), refused(&answers, "quota_exceeded")), (10, 90), "{answers:?}");
    let refusal = answers.iter().find(|answer| answer.code() == "quota_exceeded").unwrap();
    let details = &refusal.body["error"]["details"];
    assert_eq!(
        (&details["limit"], &details["allowed"], &details["held"]),
        (&json!("person"), &json!(10), &json!(10))
    );
    invariants::hold(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_project_and_an_organization_count_gpus_and_hold_under_any_race() {
    let world = World::new().await;
    world.test.set_global_policy("quota.gpus_per_project", "11").await;
    world.test.set_global_policy("quota.gpus_per_org", "9").await;
    world.region("eu").await;
    for _ in 0..6 {
        world.node("eu", 8).await;
    }
    let second = world.another_tenant("second").await;
    let requests = (0..40).map(|n| (if n % 2 == 0 { world.tenant } else { second }, slice(2))).collect();
    let answers = at_once(&world, requests).await;
    // Four times two GPUs each, within nine.
    assert_eq!((won(&answers), refused(&answers, "quota_exceeded")), (8, 32), "{answers:?}");
    let refusal = answers.iter().find(|answer| answer.code() == "quota_exceeded").unwrap();
    assert_eq!(refusal.body["error"]["details"]["limit"], "org");
    invariants::hold(&world).await;
}
