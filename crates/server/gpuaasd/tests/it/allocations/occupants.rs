//! Operators learn whose machines are on a node, and people that a machine is simulated.

use serde_json::{Value, json};
use testkit::{World, eventually};

const SLICE: &str = "h200-sxm-slice";

#[tokio::test]
async fn what_stands_in_the_way_of_a_retirement_is_named_with_its_owner() {
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let node = format!("/api/v1/platform/nodes/{}", nodes.ids[0]);
    let act =
        async |what: &str| world.admin.post(&format!("{node}/{what}"), json!({ "reason": "old iron" })).await;
    let empty = world.admin.get(&node).await.expect(200);
    assert_eq!(empty["occupants"], json!({ "total": 0, "items": [] }));

    let (ann, bob) = (world.tenant("ann").await, world.tenant("bob").await);
    let first = ann.active(json!({ "sku": SLICE, "gpus": 2, "name": "training" })).await;
    let second = bob.active(json!({ "sku": SLICE, "gpus": 1, "name": "notebook" })).await;
    let drained = act("drain").await.expect(202);
    assert_eq!((&drained["state"], &drained["occupants"]["total"]), (&json!("draining"), &json!(2)));

    let refused = act("retire").await.refused(409, "in_use");
    let error = &refused["error"];
    assert_eq!(error["message"], "2 allocations are still on the node.");
    assert_eq!(error["details"]["allocations_total"], 2);
    let named = error["details"]["allocations"].as_array().unwrap();
    let shown = |one: &Value| {
        ["allocation_id", "allocation_name", "state", "project_name"]
            .map(|field| one[field].as_str().unwrap().to_owned())
    };
    assert_eq!(shown(&named[0]), [first.as_str(), "training", "active", "ann-lab"].map(str::to_owned));
    assert_eq!(shown(&named[1]), [second.as_str(), "notebook", "active", "bob-lab"].map(str::to_owned));
    assert_eq!(named[0]["org_id"], ann.person.org_id.as_str());
    assert!(named[0]["owner"].as_str().unwrap().starts_with("ann@"), "{error}");
    assert!(!named[0]["org_name"].as_str().unwrap().is_empty() && named[0]["since"].is_string(), "{error}");
    // The same while one looks at the node; tenants see neither.
    assert_eq!(
        world.admin.get(&node).await.expect(200)["occupants"]["items"],
        error["details"]["allocations"]
    );
    assert_eq!(ann.api().get(&node).await.status, 403);

    ann.release(&first).await;
    let refused = act("retire").await.refused(409, "in_use");
    assert_eq!(refused["error"]["message"], "One allocation is still on the node.");
    bob.release(&second).await;
    eventually("the node can be retired", || async { (act("retire").await.status == 200).then_some(()) })
        .await;
    assert_eq!(world.admin.get(&node).await.expect(200)["occupants"]["total"], 0);
}

#[tokio::test]
async fn a_simulated_machine_says_so_wherever_its_connection_is_shown() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(json!({ "sku": SLICE, "gpus": 1 })).await;
    let shown = ann.get(&id).await;
    let listed = ann.api().get(&ann.path("")).await.expect(200)["items"][0].clone();
    for allocation in [shown, listed] {
        assert_eq!(allocation["simulated"], true, "{allocation}");
        assert_eq!(allocation["connection"]["simulated"], true, "{allocation}");
    }
}
