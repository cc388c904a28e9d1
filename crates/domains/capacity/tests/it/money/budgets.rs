//! A project that has spent its budget and wants that ends what it runs, and only that.

use capacity::service::forced::release_overdue;
use events::billing::BudgetCrossed;

use super::{
    bank::{self, Bank, RATE},
    kit::SLICE,
};

/// It has spent its budget, and nobody was told.
async fn spent(bank: &Bank, action: &str) {
    let (org, project) = (bank.org.uuid(), bank.project.uuid());
    let now = bank.test.db.ambient().now();
    bank.sql(&format!(
        "INSERT INTO budgets (project_id, org_id, amount_minor, threshold_percent, action, created_at, updated_at)
             VALUES ('{project}', '{org}', 100, 100, '{action}', now(), now())
             ON CONFLICT (project_id) DO UPDATE SET action = excluded.action;
         INSERT INTO budget_progress (project_id, org_id, month, spent_minor, through_seq, crossed_at)
             VALUES ('{project}', '{org}', date_trunc('month', '{0}'::timestamptz AT TIME ZONE 'UTC')::date, 100, 1, '{0}')
             ON CONFLICT DO NOTHING",
        now.to_rfc3339()
    ))
    .await;
}

async fn crossed(bank: &Bank, action: &str) {
    spent(bank, action).await;
    let permit = pg::Permit::system("test", bank.origin());
    let mut tx = bank.test.db.write(permit, "budget.test").await.unwrap();
    let event = BudgetCrossed {
        org_id: bank.org,
        project_id: bank.project,
        action: action.parse().unwrap(),
        amount_minor: 100,
        threshold_percent: 100,
        spent_minor: 100,
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
    for action in ["notify", "block"] {
        crossed(&bank, action).await;
        assert_eq!((bank.state(id).await.as_str(), bank.meter(id).await.as_str()), ("active", "open"));
    }
    crossed(&bank, "release").await;
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
    crossed(&bank, "notify").await;
    bank.sql("UPDATE budgets SET amount_minor = 1000").await;
    bank.sql("UPDATE budgets SET action = 'release'").await;
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
    crossed(&bank, "block").await;
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 0, "it blocks launches only");
    bank.sql("UPDATE budgets SET action = 'release', amount_minor = 1000").await;
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 0, "it was raised");
    bank.sql("UPDATE budgets SET amount_minor = 100").await;
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
    spent(&bank, "release").await;
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 1, "nobody was told at all");
    assert_eq!(bank.drive(&next.to_string()).await, "succeeded");
    bank::hold(&bank.test).await;
}
