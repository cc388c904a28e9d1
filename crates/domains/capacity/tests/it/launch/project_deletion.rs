//! A project goes only when nothing lives in it, and nothing is launched into one that is gone.

use http::StatusCode;

use super::{
    invariants,
    world::{World, slice},
};

/// Allocations that live in a project which is not there.
const STRAYS: &str = "SELECT count(*) FROM allocations a WHERE a.state NOT IN ('released', 'failed')
    AND NOT EXISTS (SELECT FROM projects p WHERE p.id = a.project_id)";

#[tokio::test(flavor = "multi_thread")]
async fn a_project_with_an_allocation_is_kept_and_the_refusal_names_it() {
    let world = World::new().await;
    world.region("eu").await;
    world.node("eu", 1).await;
    let tenant = world.owned_project(world.tenant).await;
    let allocation = world.launch(tenant, slice(1)).await.id();
    let refused = world.delete_project(tenant).await;
    assert_eq!((refused.status, refused.code()), (StatusCode::CONFLICT, "in_use"), "{refused:?}");
    let error = &refused.body["error"];
    assert_eq!(error["details"]["residents"][0]["id"], allocation.as_str(), "{error}");
    assert_eq!(error["details"]["counts"]["allocation"], 1, "{error}");
    assert!(error["suggestion"].as_str().unwrap().contains("release its allocations"), "{error}");
    world.sql("UPDATE allocations SET state = 'failed', finished_at = now()").await;
    assert_eq!(
        world.delete_project(tenant).await.status,
        StatusCode::NO_CONTENT,
        "what has ended is history"
    );
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_hundred_deletions_that_meet_launches_none_leaves_a_machine_without_a_project() {
    let world = World::new().await;
    world.test.set_global_policy("allocation.max_concurrent_per_user", "1000").await;
    world.region("eu").await;
    for _ in 0..25 {
        world.node("eu", 8).await;
    }
    let mut deleted = 0;
    for _ in 0..20 {
        let mut running = Vec::new();
        for turn in 0..10 {
            let tenant = world.owned_project(world.tenant).await;
            let (launching, deleting) = (world.clone(), world.clone());
            let launch = tokio::spawn(async move { launching.launch(tenant, slice(1)).await });
            let delete = tokio::spawn(async move {
                // A deletion takes less time than a launch: some begin when the launch has got somewhere.
                for _ in 0..turn * 20 {
                    tokio::task::yield_now().await;
                }
                deleting.delete_project(tenant).await
            });
            running.push((launch, delete));
        }
        for (launch, delete) in running {
            let (launch, delete) = (launch.await.unwrap(), delete.await.unwrap());
            match delete.status {
                StatusCode::NO_CONTENT => {
                    deleted += 1;
                    // Nobody has a key for the machines of a project that is gone; whoever found one before is told that it is.
                    assert!(["not_found", "unprocessable"].contains(&launch.code()), "{launch:?}");
                }
                _ => {
                    assert_eq!(
                        (delete.status, delete.code()),
                        (StatusCode::CONFLICT, "in_use"),
                        "{delete:?}"
                    );
                    assert_eq!(launch.status, StatusCode::ACCEPTED, "{launch:?}");
                }
            }
        }
    }
    assert_eq!(world.count(STRAYS).await, 0);
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 200 - deleted);
    invariants::hold(&world).await;
}

#[tokio::test]
async fn the_database_deletes_no_organization_and_no_project_that_something_lives_in() {
    let world = World::new().await;
    world.region("eu").await;
    world.node("eu", 1).await;
    world.launch(world.tenant, slice(1)).await.id();
    let mut admin = world.test.conn(pg::Roles::Admin).await;
    for (sql, reason) in [
        ("DELETE FROM projects", "allocations_live_project"),
        ("DELETE FROM organizations", "organizations are suspended, never deleted"),
    ] {
        let refused = sqlx::query(sql).execute(&mut admin).await.unwrap_err();
        assert!(refused.to_string().contains(reason), "{sql}: {refused}");
    }
}
