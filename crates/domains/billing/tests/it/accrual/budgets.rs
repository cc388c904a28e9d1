//! Budgets are added up as money is spent, and crossed once a month.

use billing::{
    api::funds_hold,
    model::budget_resource::{BudgetAction, BudgetWanted},
};
use testmoney::launch_request;

use super::kit::Kit;

async fn with_budget(amount: i64, action: BudgetAction) -> Kit {
    let kit = Kit::new().await;
    budget_set(&kit, amount, action).await;
    kit
}

async fn budget_set(kit: &Kit, amount_minor: i64, action: BudgetAction) {
    let wanted = BudgetWanted { amount_minor, threshold_percent: 50, action };
    kit.money.budget_set((kit.org, kit.project), wanted).await;
}

async fn spent(kit: &Kit) -> i64 {
    kit.one("SELECT spent_minor FROM budget_progress").await
}

async fn launch_again(kit: &Kit) -> Result<(), String> {
    let launch = launch_request(&kit.test.db, (kit.org, kit.project), 1, 1);
    let mut tx = kit.write("test.launch").await;
    let answer = funds_hold(&kit.billing, &mut tx, &launch).await.map_err(|failure| format!("{failure:?}"));
    tx.roll_back().await;
    answer
}

#[tokio::test]
async fn a_budget_is_crossed_once_and_counts_what_was_given_back() {
    let kit = with_budget(1000, BudgetAction::Notify).await;
    kit.policy("billing.launch_hold_seconds", 900).await;
    let meter = kit.launch(3600, 1).await;
    kit.pass(480);
    kit.tick().await;
    // What is set aside is not spent.
    assert_eq!((spent(&kit).await, kit.events_emitted("budget_crossed").await), (480, 0));
    kit.pass(60);
    kit.tick().await;
    assert_eq!((spent(&kit).await, kit.events_emitted("budget_crossed").await), (540, 1));
    kit.pause(meter, 100).await;
    kit.resume(meter).await;
    kit.pass(60);
    kit.tick().await;
    assert_eq!((spent(&kit).await, kit.events_emitted("budget_crossed").await), (500, 1));
    kit.pass(60);
    kit.tick().await;
    assert_eq!((spent(&kit).await, kit.events_emitted("budget_crossed").await), (560, 1));
    kit.holds().await;
}

#[tokio::test]
async fn a_new_month_begins_with_nothing_spent() {
    let kit = with_budget(1000, BudgetAction::Block).await;
    kit.launch(3600, 1).await;
    kit.pass(600);
    kit.tick().await;
    assert_eq!(kit.events_emitted("budget_crossed").await, 1);
    assert!(launch_again(&kit).await.unwrap_err().contains("budget"));
    // The usage of the days between is posted in June, as it is in the ledger.
    kit.test.sql("UPDATE meters SET state = 'paused'").await;
    kit.pass(26 * 86_400);
    assert!(launch_again(&kit).await.is_ok());
    kit.tick().await;
    assert_eq!(spent(&kit).await, 0);
    assert_eq!(kit.events_emitted("budget_crossed").await, 1);
}

#[tokio::test]
async fn a_budget_that_is_raised_lets_launches_through_at_once_and_can_be_crossed_again() {
    let kit = with_budget(1000, BudgetAction::Block).await;
    kit.launch(3600, 1).await;
    kit.pass(600);
    kit.tick().await;
    assert!(launch_again(&kit).await.is_err());
    kit.pass(1);
    kit.test.sql(&format!("UPDATE budgets SET amount_minor = 2000, updated_at = '{}'", kit.now())).await;
    assert!(launch_again(&kit).await.is_ok());
    kit.pass(60);
    kit.tick().await;
    assert_eq!(kit.events_emitted("budget_crossed").await, 1);
    kit.pass(600);
    kit.tick().await;
    assert_eq!(kit.events_emitted("budget_crossed").await, 2);
    assert!(launch_again(&kit).await.is_err());
}

#[tokio::test]
async fn a_new_budget_counts_what_was_spent_in_the_month_before_it() {
    let kit = Kit::new().await;
    let meter = kit.launch(3600, 1).await;
    kit.pass(90);
    kit.close(meter).await;
    kit.tick().await;
    kit.pass(3600);
    budget_set(&kit, 100, BudgetAction::Release).await;
    kit.tick().await;
    assert_eq!((spent(&kit).await, kit.events_emitted("budget_crossed").await), (90, 1));
    let looked = "SELECT count(*) FROM audit_logs WHERE action = 'billing.evaluate'";
    assert_eq!(kit.one::<i64>(looked).await, 1);
    kit.tick().await;
    assert_eq!(kit.one::<i64>(looked).await, 1);
}
