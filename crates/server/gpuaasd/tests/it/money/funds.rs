//! What a launch needs.

use testkit::{World, eventually, invariants};

use super::{SLICE, balance, meter, slice};

#[tokio::test]
async fn a_launch_without_money_is_refused_and_says_what_to_do() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.poor_tenant("ann").await;
    let refused = ann.request(slice()).await.refused(402, "insufficient_balance");
    assert_eq!(refused["error"]["details"]["available_minor"], 0, "{refused}");
    assert_eq!(refused["error"]["details"]["needed_minor"], 450, "{refused}");
    world.fund(&ann.person.org_id, 449).await;
    ann.request(slice()).await.refused(402, "insufficient_balance");
    world.fund(&ann.person.org_id, 1).await;
    let id = ann.active(slice()).await;
    assert_eq!(meter(&world, &id).await, "open");
    ann.request(slice()).await.refused(402, "insufficient_balance");
    assert_eq!(world.free(SLICE).await, 7, "what was refused holds nothing");
    ann.release(&id).await;
    eventually("what was not used is back", || async {
        (balance(&ann).await["held_minor"] == 0).then_some(())
    })
    .await;
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn a_launch_that_fails_costs_nothing() {
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let before = balance(&ann).await;
    nodes.script("[[script]]\ntask = 'slice.vm_provision'\n");
    let id = ann.launch(slice()).await;
    assert_eq!(balance(&ann).await["held_minor"], 450);
    eventually("it failed", || async { (ann.state(&id).await == "failed").then_some(()) }).await;
    let after = balance(&ann).await;
    for field in ["prepaid_minor", "held_minor", "total_minor"] {
        assert_eq!(after[field], before[field], "{field} in {after}");
    }
    assert_eq!(meter(&world, &id).await, "void");
    invariants::hold(&world.db).await;
}
