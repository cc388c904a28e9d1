//! What a launch makes, what it refuses, and that it happens once.

use http::{Method, StatusCode};
use serde_json::json;

use super::{
    invariants,
    world::{World, slice, whole, won},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_pins_product_price_and_size_and_starts_its_workflow() {
    let world = World::new().await;
    world.region("eu").await;
    world.node("eu", 8).await;
    let made =
        world.launch(world.tenant, json!({ "sku": "h200-sxm-slice", "gpus": 2, "name": "training" })).await;
    assert_eq!(made.status, StatusCode::ACCEPTED, "{made:?}");
    let body = &made.body;
    assert_eq!(
        (&body["state"], &body["region"], &body["gpus"]),
        (&json!("requested"), &json!("eu"), &json!(2))
    );
    assert_eq!((&body["unit_price_minor"], &body["price_unit"]), (&json!(450), &json!("gpu_hour")));
    assert_eq!((&body["profile"]["vcpus"], &body["name"]), (&json!(48), &json!("training")));
    assert!(body.get("connection").is_none(), "there is nothing to log in to yet");

    let found = world.get(world.tenant, &format!("allocations/{}", made.id())).await;
    // Whether its node is simulated is read with it, not at a launch.
    let mut written = found.body.clone();
    assert_eq!(written.as_object_mut().unwrap().remove("simulated"), Some(json!(false)));
    assert_eq!(written, made.body, "what was answered is what was written");
    let listed = world.get(world.tenant, "allocations?live=true&state=requested").await;
    assert_eq!(listed.body["items"], json!([found.body]));
    assert_eq!(world.get(world.tenant, "allocations?state=active").await.body["items"], json!([]));
    let events = world.get(world.tenant, &format!("allocations/{}/events", made.id())).await;
    assert_eq!(events.body["items"][0]["to_state"], "requested");
    assert_eq!(world.count("SELECT count(*) FROM saga_runs WHERE name LIKE 'provision%'").await, 1);

    let machine = world.launch(world.tenant, whole()).await;
    assert_eq!(machine.code(), "sku_unavailable", "the node is not whole any more");
    invariants::hold(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeating_a_launch_makes_nothing_more() {
    let world = World::new().await;
    world.region("eu").await;
    world.node("eu", 8).await;
    let path = format!("{}/allocations", world.tenant.project);
    let running: Vec<_> = (0..20)
        .map(|_| {
            let (world, path) = (world.clone(), path.clone());
            tokio::spawn(async move {
                world.send(world.tenant.member, Method::POST, &path, Some("one"), Some(slice(1))).await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for one in running {
        answers.push(one.await.unwrap());
    }
    assert!(won(&answers) >= 1);
    let first = answers.iter().find(|answer| answer.status == StatusCode::ACCEPTED).unwrap().id();
    for answer in &answers {
        assert!(answer.code() == "conflict" || answer.id() == first, "{answer:?}");
    }
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 1);

    let again = world.send(world.tenant.member, Method::POST, &path, Some("one"), Some(slice(2))).await;
    assert_eq!(again.code(), "idempotency_key_reused");
    let without = world.send(world.tenant.member, Method::POST, &path, None, Some(slice(1))).await;
    assert_eq!(without.code(), "idempotency_key_required");
    invariants::hold(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_launched_is_refused_with_what_to_do() {
    let world = World::new().await;
    world.region("eu").await;
    world.node("eu", 8).await;
    for (body, field) in [
        (json!({ "sku": "h900" }), "sku"),
        (json!({ "sku": "h200-sxm-slice", "gpus": 3 }), "gpus"),
        (json!({ "sku": "h200-sxm-slice", "profile": "huge" }), "profile"),
        (json!({ "sku": "h200-sxm-slice", "region": "nowhere" }), "region"),
        (json!({ "sku": "h200-sxm-baremetal-8g", "image": "mine" }), "image"),
        (json!({ "sku": "h200-sxm-slice", "image": "../x" }), "image"),
        (json!({ "sku": "h200-sxm-slice", "node_id": "x" }), "node_id"),
    ] {
        let answer = world.launch(world.tenant, body.clone()).await;
        assert_eq!(answer.code(), "validation_error", "{body}: {answer:?}");
        assert!(answer.body["error"]["details"]["fields"][0]["field"] == field, "{body}: {answer:?}");
    }
    let keyless = world.joins(world.tenant, "keyless").await;
    let answer = world.launch(keyless, slice(1)).await;
    assert_eq!((answer.status, answer.code()), (StatusCode::UNPROCESSABLE_ENTITY, "unprocessable"));
    assert!(answer.body["error"]["suggestion"].as_str().unwrap().contains("ssh-keys"), "{answer:?}");

    let none = world.launch(world.tenant, json!({ "sku": "mi300x" })).await;
    assert_eq!(none.code(), "sku_unavailable");
    assert_eq!(none.body["error"]["details"]["reason"], "no_capacity_in_region");
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 0);
    invariants::hold(&world).await;
}
