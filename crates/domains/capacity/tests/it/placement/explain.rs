//! Explanations say what a launch would meet, and nothing about single machines.

use ::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::world::{World, slice};

async fn explained(world: &World, query: &str) -> Value {
    let answer = world.get(world.tenant, &format!("allocations/explain?{query}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    answer.body
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_says_where_it_fits_and_what_it_costs() {
    let world = World::new().await;
    world.region("east").await;
    world.region("west").await;
    world.node("west", 4).await;
    let answer = explained(&world, "sku=h200-sxm-slice&gpus=2&count=2").await;
    assert_eq!((&answer["fits"], &answer["region"]), (&json!(true), &json!("west")), "{answer}");
    assert_eq!(
        answer["price"],
        json!({ "unit": "gpu_hour", "unit_price_minor": 450, "currency": "USD", "per_hour_minor": 1800 })
    );
    assert!(answer.get("refusal").is_none());
    assert_eq!(answer["limits"]["project_gpus"], json!({ "held": 0 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_refuses_as_the_launch_does_and_the_named_change_succeeds() {
    let world = World::new().await;
    world.region("east").await;
    world.region("west").await;
    let (east, west) = (world.node("east", 2).await, world.node("west", 1).await);
    let answer = explained(&world, "sku=h200-sxm-slice&gpus=2&region=west").await;
    assert_eq!(answer["fits"], json!(false));
    assert_eq!(answer["refusal"]["smallest_change"], json!({ "change": "region", "region": "east" }));
    let mut body = slice(2);
    body["region"] = json!("west");
    let refused = world.launch(world.tenant, body).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{refused:?}");
    let details = &refused.body["error"]["details"];
    for field in ["reason", "smallest_change", "after_cleaning"] {
        assert_eq!(details[field], answer["refusal"][field], "{field}");
    }
    world.launch(world.tenant, slice(2)).await.id();
    let answer = explained(&world, "sku=h200-sxm-slice&gpus=4").await;
    assert_eq!(answer["refusal"]["reason"], json!("no_capacity_in_region"));
    assert_eq!(answer["refusal"]["smallest_change"], json!({ "change": "gpus", "gpus": 1 }));
    let told = world.answers.lock().unwrap().clone();
    for node in [east, west] {
        assert!(!told.contains(&node.to_string()) && !told.contains(&node.uuid().simple().to_string()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_explained_before_anybody_runs_into_them() {
    let world = World::new().await;
    world.test.set_global_policy("quota.gpus_per_project", "3").await;
    world.region("east").await;
    world.node("east", 8).await;
    world.launch(world.tenant, slice(1)).await.id();
    let answer = explained(&world, "sku=h200-sxm-slice&gpus=1&count=4").await;
    assert_eq!((&answer["fits"], &answer["refusal"]["reason"]), (&json!(false), &json!("quota")), "{answer}");
    assert_eq!(answer["refusal"]["smallest_change"], json!({ "change": "count", "count": 2 }));
    assert_eq!(answer["limits"]["project_gpus"], json!({ "held": 1, "allowed": 3 }));
    let answer = explained(&world, "sku=h200-sxm-slice&gpus=4").await;
    assert_eq!(answer["refusal"]["smallest_change"], json!({ "change": "gpus", "gpus": 2 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_asked_is_refused_by_field() {
    let world = World::new().await;
    world.region("east").await;
    for (query, field) in [
        ("sku=no-such", "sku"),
        ("sku=h200-sxm-slice&gpus=3", "gpus"),
        ("sku=h200-sxm-slice&count=0", "count"),
        ("sku=h200-sxm-slice&count=65", "count"),
        ("sku=h200-sxm-slice&region=nowhere", "region"),
    ] {
        let answer = world.get(world.tenant, &format!("allocations/explain?{query}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query} {answer:?}");
        assert_eq!(answer.body["error"]["details"]["fields"][0]["field"], json!(field), "{answer:?}");
    }
    let stranger = world.another_tenant("second").await;
    let path = format!("{}/allocations/explain?sku=h100", world.tenant.project);
    let answer = world.send(stranger.member, Method::GET, &path, None, None).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{answer:?}");
}
