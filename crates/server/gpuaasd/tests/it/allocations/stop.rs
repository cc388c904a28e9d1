//! A process that is told to stop gives back what it holds: whoever starts next goes on at once.

use serde_json::json;
use sqlx::{Connection as _, Executor as _};
use testkit::{World, eventually, invariants};

#[tokio::test]
async fn launches_under_way_are_given_back_by_a_stop_and_go_on_in_the_next_process() {
    let mut world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    // The workflow's first task for the node waits for this transaction.
    let mut held = world.db.conn(pg::Roles::Admin).await;
    held.execute("BEGIN; LOCK TABLE node_tasks IN SHARE MODE").await.unwrap();
    let id = ann.launch(json!({ "sku": "h200-sxm-slice", "gpus": 1 })).await;
    let leased = "SELECT count(*) FROM saga_runs WHERE lease_until > now()";
    eventually("a worker is at it", || async { (world.count(leased).await == 1).then_some(()) }).await;

    assert_eq!(world.server.stop().await, Some(0), "{}", world.server.log());
    assert_eq!(world.count(leased).await, 0, "the lease was given back: {}", world.server.log());

    held.execute("ROLLBACK").await.unwrap();
    held.close().await.unwrap();
    world.server.spawn();
    world.server.ready().await;
    ann.until(&id, "active").await;
    invariants::hold(&world.db).await;
}
