//! Balances and budgets are evaluated when something starts or stops, and not a window later.

use billing::{
    model::{
        balance::BalanceState,
        budget_resource::{Budget, BudgetAction, BudgetWanted},
    },
    service::budgets::budget_get,
};
use kernel::CorrelationId;
use pg::{Origin, Permit};
use testkit::eventually;

use super::kit::{Kit, worker};

/// An organization with 100.00 in which a launch must be able to pay for ten minutes.
async fn with_100_usd() -> Kit {
    let kit = Kit::new().await;
    kit.fund(kit.org, 10_000 - 1_000_000).await;
    kit.policy("billing.launch_hold_seconds", 600).await;
    kit
}

async fn budget(kit: &Kit) -> Budget {
    let origin = Origin::internal(CorrelationId(kit.test.db.ambient().uuid()));
    let mut read = kit.test.db.read(&Permit::system("test", origin)).await.unwrap();
    budget_get(&kit.billing, &mut read, kit.org, kit.project).await.unwrap()
}

async fn queue_length(kit: &Kit) -> i64 {
    kit.one("SELECT count(*) FROM balance_evaluations").await
}

#[tokio::test]
async fn a_costly_machine_is_warned_of_when_it_starts_and_the_balance_is_healthy_when_it_stops() {
    let kit = with_100_usd().await;
    // 600.00 an hour: ten minutes.
    let machine = kit.launch(60_000, 1).await;
    assert_eq!(
        (kit.state().await, kit.balance().await.state),
        ("healthy".to_owned(), BalanceState::LowBalance)
    );
    assert_eq!(kit.evaluate().await.evaluated, 1);
    assert_eq!(
        (kit.state().await, kit.events_emitted("low_balance_warning").await),
        ("low_balance".to_owned(), 1)
    );
    let end = kit.balance().await.projected_depletion_at.unwrap();
    let told: String = kit.one(
        "SELECT payload->>'depletes_at' FROM outbox_events WHERE event_type = 'billing.low_balance_warning'",
    ).await;
    assert_eq!(told.parse::<chrono::DateTime<chrono::Utc>>().unwrap(), end);
    // Nothing was accrued for it.
    assert_eq!((kit.posted(machine).await, queue_length(&kit).await), (0, 0));
    kit.pass(5);
    kit.close(machine).await;
    kit.evaluate().await;
    assert_eq!((kit.state().await, kit.events_emitted("balance_restored").await), ("healthy".to_owned(), 0));
    assert_eq!(kit.posted(machine).await, 0);
    kit.tick().await;
    kit.holds().await;
}

#[tokio::test]
async fn a_meter_that_pauses_and_resumes_changes_the_state_at_once() {
    let kit = with_100_usd().await;
    let machine = kit.launch(60_000, 1).await;
    kit.evaluate().await;
    kit.pause(machine, 0).await;
    kit.evaluate().await;
    assert_eq!(kit.state().await, "healthy");
    kit.resume(machine).await;
    kit.evaluate().await;
    assert_eq!(
        (kit.state().await, kit.events_emitted("low_balance_warning").await),
        ("low_balance".to_owned(), 2)
    );
}

#[tokio::test]
async fn many_changes_are_one_evaluation_and_nothing_new_is_no_audit_row() {
    let kit = Kit::new().await;
    for _ in 0..20 {
        let machine = kit.launch(100, 1).await;
        kit.close(machine).await;
    }
    let another = kit.another_tenant("other", 1_000_000).await;
    kit.launch_of(another, 100, 1).await;
    assert_eq!(queue_length(&kit).await, 41);
    let turn = kit.evaluate().await;
    assert_eq!((turn.evaluated, turn.more, queue_length(&kit).await), (2, false, 0));
    let audited = "SELECT count(*) FROM audit_logs WHERE action = 'billing.evaluate'";
    let before: i64 = kit.one(audited).await;
    let third = kit.launch(0, 1).await;
    assert_eq!((kit.evaluate().await.evaluated, kit.one::<i64>(audited).await), (1, before));
    kit.close(third).await;
    // Nothing is left to do.
    kit.evaluate().await;
    assert_eq!(kit.evaluate().await.evaluated, 0);
}

#[tokio::test]
async fn a_chain_that_somebody_locked_is_left_for_the_next_turn() {
    let kit = with_100_usd().await;
    kit.launch(60_000, 1).await;
    let mut tx = kit.write("test.lock").await;
    assert!(!billing::api::is_depleted(&mut tx, kit.org).await.unwrap());
    let turn = kit.evaluate().await;
    assert_eq!((turn.evaluated, turn.more, queue_length(&kit).await), (0, true, 1));
    tx.roll_back().await;
    assert_eq!((kit.evaluate().await.evaluated, kit.state().await), (1, "low_balance".to_owned()));
}

#[tokio::test]
async fn a_change_that_commits_after_a_later_one_was_evaluated_is_not_lost() {
    let kit = with_100_usd().await;
    let costly = testmoney::launch_request(&kit.test.db, (kit.org, kit.project), 60_000, 1);
    kit.money.hold(&costly).await.unwrap();
    let mut slow = kit.write("meter.open").await;
    billing::api::meter_open(&mut slow, costly.allocations[0], kit.now()).await.unwrap();
    let another = kit.another_tenant("other", 1_000_000).await;
    kit.launch_of(another, 100, 1).await;
    assert_eq!(kit.evaluate().await.evaluated, 1);
    slow.commit(None).await.unwrap();
    assert_eq!((kit.evaluate().await.evaluated, kit.state().await), (1, "low_balance".to_owned()));
}

#[tokio::test]
async fn two_workers_at_once_warn_once() {
    let kit = with_100_usd().await;
    let (one, other) = (worker(&kit.test), worker(&kit.test));
    kit.launch(60_000, 1).await;
    let (a, b) = tokio::join!(
        billing::service::evaluations::queue_evaluate(&one),
        billing::service::evaluations::queue_evaluate(&other)
    );
    assert!(a.unwrap().evaluated + b.unwrap().evaluated >= 1);
    kit.evaluate().await;
    assert_eq!((kit.events_emitted("low_balance_warning").await, queue_length(&kit).await), (1, 0));
}

#[tokio::test]
async fn a_budget_is_spent_up_to_now_and_crossed_when_something_stops() {
    let kit = Kit::new().await;
    let wanted = BudgetWanted { amount_minor: 1000, threshold_percent: 50, action: BudgetAction::Block };
    kit.money.budget_set((kit.org, kit.project), wanted).await;
    kit.launch(3600, 1).await;
    let short = kit.launch(1, 1).await;
    kit.pass(60);
    kit.tick().await;
    kit.pass(30);
    let now = budget(&kit).await;
    assert_eq!((now.spent_minor, now.unposted_minor, now.spent_percent), (90, 30, 9));
    kit.policy("billing.window_seconds", 3600).await;
    kit.pass(420);
    assert_eq!((budget(&kit).await.spent_minor, kit.events_emitted("budget_crossed").await), (510, 0));
    // Whatever starts or stops, the worker sees what was spent.
    kit.close(short).await;
    kit.evaluate().await;
    assert_eq!(kit.events_emitted("budget_crossed").await, 1);
    let told: i64 = kit.one(
        "SELECT (payload->>'spent_minor')::bigint FROM outbox_events WHERE event_type = 'billing.budget_crossed'",
    ).await;
    assert_eq!((told, budget(&kit).await.crossed_at.is_some()), (510, true));
    // Launches are refused at once, although nothing was posted for it.
    let refused =
        kit.money.hold(&testmoney::launch_request(&kit.test.db, (kit.org, kit.project), 1, 1)).await;
    assert!(format!("{:?}", refused.unwrap_err()).contains("monthly budget"));
    kit.tick().await;
    assert_eq!(kit.events_emitted("budget_crossed").await, 1);
    kit.holds().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_hears_of_a_start_without_waiting_for_a_window() {
    let kit = with_100_usd().await;
    kit.policy("billing.window_seconds", 3600).await;
    let (wake, listening) = kit.test.db.listen();
    let worker = tokio::spawn(billing::jobs::run(kit.billing.clone(), wake));
    kit.launch(6_000, 1).await;
    kit.launch(54_000, 1).await;
    // Within the next window, which is an hour.
    eventually("the end is told", || async {
        (kit.events_emitted("auto_release_pending").await == 1).then_some(())
    })
    .await;
    worker.abort();
    listening.abort();
}
