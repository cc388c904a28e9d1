//! What a launch needs, and what it sets aside.

use http::StatusCode;
use node_proto::TaskType;
use node_proto::contract::FailureCode;

use super::{
    bank::{self, Bank, RATE, balances, billed, gain},
    kit::SLICE,
    node::failed,
    world::{World, at_once, refused, slice, won},
};

/// An hour of one GPU of a slice.
const EACH: i64 = 450;

async fn world() -> std::sync::Arc<World> {
    let world = World::with(billed).await;
    world.test.set_global_policy("allocation.max_concurrent_per_user", "1000").await;
    world.region("eu").await;
    for _ in 0..13 {
        world.node("eu", 8).await;
    }
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_launches_on_a_balance_for_three_three_pass() {
    let world = world().await;
    gain(&world.test.db, world.tenant.org, 3 * EACH + EACH - 1).await;
    let other = world.another_tenant("second").await;
    gain(&world.test.db, other.org, EACH).await;
    let mut requests: Vec<_> = (0..100).map(|_| (world.tenant, slice(1))).collect();
    requests.insert(50, (other, slice(1)));
    let answers = at_once(&world, requests).await;
    assert_eq!((won(&answers), refused(&answers, "insufficient_balance")), (4, 97), "{answers:?}");
    let refusal = answers.iter().find(|answer| answer.code() == "insufficient_balance").unwrap();
    assert_eq!(refusal.status, StatusCode::PAYMENT_REQUIRED);
    assert_eq!(refusal.body["error"]["details"]["needed_minor"], EACH, "{refusal:?}");
    for (tenant, left, machines) in [(world.tenant, EACH - 1, 3), (other, 0, 1)] {
        let after = balances(&world.test, tenant.org).await;
        assert_eq!((after.prepaid_minor, after.held_minor), (left, machines * EACH));
        let org = tenant.org.uuid();
        for table in ["allocations", "saga_runs", "meters"] {
            let count = world.count(&format!("SELECT count(*) FROM {table} WHERE org_id = '{org}'")).await;
            assert_eq!(count, machines, "{table}");
        }
    }
    bank::hold(&world.test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_launched_without_money_however_many_try() {
    let world = world().await;
    for step in [0, 10 * EACH, -10 * EACH, -EACH] {
        if step != 0 {
            gain(&world.test.db, world.tenant.org, step).await;
        }
        if step > 0 {
            continue;
        }
        let answers = at_once(&world, (0..100).map(|_| (world.tenant, slice(1))).collect()).await;
        assert_eq!(refused(&answers, "insufficient_balance"), 100, "{answers:?}");
    }
    for table in ["allocations", "saga_runs", "meters", "capacity_claims"] {
        assert_eq!(world.count(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    bank::hold(&world.test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_paid_for_as_a_whole_or_refused() {
    let world = world().await;
    gain(&world.test.db, world.tenant.org, 4 * EACH - 1).await;
    let body = serde_json::json!({ "sku": "h200-sxm-slice", "gpus": 1, "members": 4, "name": "team" });
    let answer = world.post(world.tenant, "allocation-groups", body.clone()).await;
    assert_eq!(answer.code(), "insufficient_balance", "{answer:?}");
    assert_eq!(world.count("SELECT count(*) FROM allocations").await, 0);
    gain(&world.test.db, world.tenant.org, 1).await;
    let answer = world.post(world.tenant, "allocation-groups", body).await;
    assert!(answer.status.is_success(), "{answer:?}");
    assert_eq!(world.count("SELECT count(*) FROM meters WHERE state = 'held'").await, 4);
    assert_eq!(balances(&world.test, world.tenant.org).await.prepaid_minor, 0);
    bank::hold(&world.test).await;
}

#[tokio::test]
async fn a_launch_that_failed_gives_back_what_it_set_aside() {
    let bank = Bank::with(RATE).await;
    let id = bank.launch(SLICE).await;
    let before = bank.balances().await;
    assert_eq!((before.prepaid_minor, before.held_minor, bank.meter(id).await.as_str()), (0, RATE, "held"));
    let ending = failed(FailureCode::Driver, "no");
    bank.ends(TaskType::VmProvision, vec![ending.clone(), ending.clone(), ending.clone(), ending]);
    assert_eq!(bank.drive(&id.to_string()).await, "undone");
    let after = bank.balances().await;
    assert_eq!((after.prepaid_minor, after.held_minor, bank.meter(id).await.as_str()), (RATE, 0, "void"));
    assert_eq!(bank.charged(id).await, 0);
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn use_is_paid_from_what_was_set_aside_first_and_the_rest_of_it_comes_back() {
    let bank = Bank::with(2 * RATE).await;
    let id = bank.active(SLICE).await;
    bank.later(1200);
    bank.accrue().await;
    let third = bank.balances().await;
    let used = bank.charged(id).await;
    assert!((RATE / 3..=RATE / 3 + 1).contains(&used), "{used}");
    assert_eq!((third.prepaid_minor, third.held_minor), (RATE, RATE - used), "from what was held");
    let mut tx = bank.as_creator().await;
    capacity::service::release::allocation_release(&bank.capacity, &mut tx, bank.asked(id)).await.unwrap();
    tx.commit(None).await.unwrap();
    bank.accrue().await;
    let (after, used) = (bank.balances().await, bank.charged(id).await);
    assert_eq!((after.prepaid_minor, after.held_minor), (2 * RATE - used, 0));
    assert_eq!(bank.meter(id).await, "settled");
    assert_eq!(bank.drive(&id.to_string()).await, "succeeded");
    bank::hold(&bank.test).await;
}
