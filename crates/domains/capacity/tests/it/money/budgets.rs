//! A project that has spent its budget and wants that ends what it runs, and only that.

use billing::model::budget_resource::BudgetWanted;
use capacity::service::forced::release_overdue;
use events::billing::{BudgetAction, BudgetCrossed};
use testmoney::TestMoney;

use super::{
    bank::{self, Bank, RATE},
    kit::SLICE,
};

const AMOUNT: i64 = 10;

async fn budget_set(bank: &Bank, amount_minor: i64, action: BudgetAction) {
    let wanted = BudgetWanted { amount_minor, threshold_percent: 100, action };
    TestMoney::new(&bank.test.db).budget_set((bank.org, bank.project), wanted).await;
}

/// It has spent its budget, and nobody has heard of it yet.
async fn spent(bank: &Bank, action: BudgetAction) {
    budget_set(bank, AMOUNT, action).await;
    bank.later(120);
    TestMoney::new(&bank.test.db).accrue().await;
    let crossed = "SELECT count(*) FROM budget_progress WHERE crossed_at IS NOT NULL";
    assert_eq!(bank.one::<i64>(crossed).await, 1);
}

/// The same, and it is heard of, as often as it is called.
async fn crossed(bank: &Bank, action: BudgetAction) {
    spent(bank, action).await;
    let permit = pg::Permit::system("test", bank.origin());
    let mut tx = bank.test.db.write(permit, "budget.test").await.unwrap();
    let event = BudgetCrossed {
        org_id: bank.org,
        project_id: bank.project,
        action,
        amount_minor: AMOUNT,
        threshold_percent: 100,
        spent_minor: AMOUNT,
        currency: "USD".to_owned(),
    };
    tx.emit_for(bank.org, Some(bank.project), &event).unwrap();
    tx.commit(None).await.unwrap();
    bank.deliver().await;
}

#[tokio::test]
async fn a_spent_budget_releases_only_when_the_project_wants_that() {
    let bank = Bank::with(10 * RATE).await;
    let id = bank.active(SLICE).await;
    for action in [BudgetAction::Notify, BudgetAction::Block] {
        crossed(&bank, action).await;
        assert_eq!((bank.state(id).await.as_str(), bank.meter(id).await.as_str()), ("active", "open"));
    }
    crossed(&bank, BudgetAction::Release).await;
    assert_eq!((bank.state(id).await.as_str(), bank.meter(id).await.as_str()), ("releasing", "closed"));
    let cause: String =
        bank.one(&format!("SELECT release_cause FROM allocations WHERE id = '{}'", id.uuid())).await;
    assert_eq!(cause, "budget");
    assert_eq!(bank.drive(&id.to_string()).await, "succeeded");
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn a_budget_that_was_raised_meanwhile_releases_nothing() {
    let bank = Bank::with(10 * RATE).await;
    let id = bank.active(SLICE).await;
    crossed(&bank, BudgetAction::Notify).await;
    budget_set(&bank, 10 * RATE, BudgetAction::Release).await;
    let permit = pg::Permit::system("test", bank.origin());
    let mut tx = bank.test.db.write(permit, "budget.test").await.unwrap();
    let due = capacity::service::money::Due::Budget(bank.org, bank.project);
    let money = bank::billed(&bank.test.db, &identity::api::Policies::new(bank.test.db.clone()));
    assert!(!money.is_due(&mut tx, due).await.unwrap());
    tx.roll_back().await;
    assert_eq!(bank.state(id).await, "active");
}

#[tokio::test]
async fn a_spent_budget_releases_though_the_event_was_lost_or_came_before_its_action_was_release() {
    let bank = Bank::with(10 * RATE).await;
    let (running, launching) = (bank.active(SLICE).await, bank.launch(SLICE).await);
    crossed(&bank, BudgetAction::Block).await;
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 0, "it blocks launches only");
    budget_set(&bank, 10 * RATE, BudgetAction::Release).await;
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 0, "it was raised");
    budget_set(&bank, AMOUNT, BudgetAction::Release).await;
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 2);
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 0, "once");
    for id in [running, launching] {
        let cause: String =
            bank.one(&format!("SELECT release_cause FROM allocations WHERE id = '{}'", id.uuid())).await;
        assert_eq!(cause, "budget");
        bank.drive(&id.to_string()).await;
        assert_eq!(bank.state(id).await, "released");
    }
    assert_eq!(bank.meter(launching).await, "void");
    bank.sql("DELETE FROM budget_progress; DELETE FROM budgets").await;
    let next = bank.active(SLICE).await;
    spent(&bank, BudgetAction::Release).await;
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 1, "nobody was told at all");
    assert_eq!(bank.drive(&next.to_string()).await, "succeeded");
    bank::hold(&bank.test).await;
}
