//! Live allocations of one project have different names.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    invariants,
    world::{World, at_once, refused, slice, won},
};

async fn world() -> Arc<World> {
    let world = World::new().await;
    world.region("eu").await;
    for _ in 0..4 {
        world.node("eu", 8).await;
    }
    world
}

fn named(name: &str) -> Value {
    json!({ "sku": "h200-sxm-slice", "gpus": 1, "name": name })
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_launches_with_one_name_at_once_one_succeeds() {
    let world = world().await;
    let answers = at_once(&world, vec![(world.tenant, named("training")); 12]).await;
    assert_eq!((won(&answers), refused(&answers, "already_exists")), (1, 11), "{answers:?}");
    let taken = world.launch(world.tenant, named("training")).await;
    assert_eq!((taken.status, taken.code()), (StatusCode::CONFLICT, "already_exists"));
    let error = &taken.body["error"];
    assert_eq!(error["details"]["field"], "name");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("training")), "{error}");
    invariants::hold(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_free_again_when_its_allocation_is_over_and_in_every_other_project() {
    let world = world().await;
    let first = world.launch(world.tenant, named("training")).await;
    assert_eq!(first.status, StatusCode::ACCEPTED, "{first:?}");
    let other = world.owned_project(world.tenant).await;
    for tenant in [other, world.another_tenant("second").await] {
        assert_eq!(world.launch(tenant, named("training")).await.status, StatusCode::ACCEPTED);
    }
    let (id, is_it) = (first.id(), "replace(id::text, '-', '') = right");
    world
        .sql(&format!(
            "UPDATE allocations SET state = 'failed', finished_at = now() WHERE {is_it}('{id}', 32)"
        ))
        .await;
    let again = world.launch(world.tenant, named("training")).await;
    assert_eq!(again.status, StatusCode::ACCEPTED, "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn launches_without_a_name_end_in_the_tail_of_their_id_and_never_collide_with_each_other() {
    let world = world().await;
    let answers = at_once(&world, vec![(world.tenant, slice(1)); 12]).await;
    assert_eq!(won(&answers), 12, "{answers:?}");
    for answer in &answers {
        let id = answer.id();
        let name = format!("h200-sxm-slice-{}", &id[id.len() - 8..]);
        assert_eq!(answer.body["name"], json!(name), "{answer:?}");
    }
    let group = json!({ "sku": "h200-sxm-slice", "gpus": 1, "members": 2 });
    for _ in 0..2 {
        let made = world.post(world.tenant, "allocation-groups", group.clone()).await;
        assert_eq!(made.status, StatusCode::ACCEPTED, "{made:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_member_would_have_a_taken_name_is_not_made() {
    let world = world().await;
    assert_eq!(world.launch(world.tenant, named("gang-2")).await.status, StatusCode::ACCEPTED);
    let group = json!({ "sku": "h200-sxm-slice", "gpus": 1, "members": 3, "name": "gang" });
    let taken = world.post(world.tenant, "allocation-groups", group).await;
    assert_eq!(taken.code(), "already_exists", "{taken:?}");
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 1);
    invariants::hold(&world).await;
}

/// As they are when the rule comes into force.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_live_allocations_share_are_told_apart_by_the_migration() {
    let world = world().await;
    for name in ["a", "b", "c", "d"] {
        assert_eq!(world.launch(world.tenant, named(name)).await.status, StatusCode::ACCEPTED);
    }
    // One of them has the name that another would get by its id.
    world
        .sql(
            "UPDATE allocations SET unique_name = false, name = CASE name WHEN 'd' THEN 'other'
                 WHEN 'c' THEN 'train-' || (SELECT right(id::text, 6) FROM allocations WHERE name = 'b') ELSE 'train' END",
        )
        .await;
    world.sql(include_str!("../../../../../../migrations/0055_allocations_rename_duplicates.sql")).await;
    let named = |name: &str| format!("SELECT count(*) FROM allocations WHERE unique_name AND name {name}");
    assert_eq!(world.count(&named("= 'train'")).await, 1, "the oldest keeps it");
    assert_eq!(world.count(&named("LIKE 'train-%'")).await, 2);
    assert_eq!(world.count(&named("= 'other'")).await, 1);
}

/// The release before launches everything that has no name under the name of its product.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_release_before_names_twice_is_told_apart() {
    let world = world().await;
    let made = world.launch(world.tenant, named("training")).await;
    let id = "00000000-0000-4000-8000-0000000abcde";
    world
        .sql(
            "CREATE OR REPLACE FUNCTION capacity_reserve(
                p_now timestamptz, p_launch launch_terms, p_limits reserve_limits, p_allocations allocation_batch,
                p_claims claim_batch, p_origin write_origin
            ) RETURNS text LANGUAGE sql AS $$ SELECT array_to_string(p_allocations.names, ' ') $$",
        )
        .await;
    let names = format!(
        "SELECT (capacity_reserve(now(), org_id, project_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
             NULL, NULL, NULL, NULL, NULL, NULL, ARRAY['{id}', '{id}']::uuid[], ARRAY['training', 'other'],
             NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
             = 'training-000abcde other')::integer::bigint
         FROM allocations WHERE replace(id::text, '-', '') = right('{}', 32)",
        made.id()
    );
    assert_eq!(world.count(&names).await, 1);
}
