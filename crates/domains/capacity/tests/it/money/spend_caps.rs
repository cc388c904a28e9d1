//! A service account that has spent its cap ends what it launched, and only that.

use billing::service::spend_caps::AccountPlace;
use capacity::service::forced::release_overdue;
use kernel::{Failure, ids::AllocationId, principal::PrincipalId};
use testmoney::TestMoney;
use testworld::Tenant;

use super::{
    bank::{self, Bank, RATE},
    kit::SLICE,
};

/// Launches set half an hour aside.
const HOLD: i64 = RATE / 2;

async fn account(bank: &Bank, name: &str) -> AccountPlace {
    let tenant = Tenant { org: bank.org, project: bank.project, owner: bank.creator };
    let account = bank.tenants.launcher(tenant, name).await;
    AccountPlace { org: bank.org, project: bank.project, account }
}

async fn launch(bank: &Bank, account: AccountPlace) -> Result<AllocationId, String> {
    match bank.launch_by(PrincipalId::ServiceAccount(account.account), SLICE).await {
        Ok(id) => Ok(id),
        Err(Failure::Problem(problem)) => Err(problem.details["reason"].as_str().unwrap().to_owned()),
        Err(other) => panic!("{other:?}"),
    }
}

async fn active(bank: &Bank, account: AccountPlace) -> AllocationId {
    let id = launch(bank, account).await.unwrap();
    assert_eq!(bank.drive(&id.to_string()).await, "succeeded");
    id
}

/// An account without a cap, one with a small one and one with a large one; each but the first runs a machine, and so does a
/// person.
async fn running(bank: &Bank) -> (AccountPlace, [AllocationId; 3]) {
    let (small, large) = (account(bank, "small").await, account(bank, "large").await);
    let money = TestMoney::new(&bank.test.db);
    money.spend_cap_set(small, HOLD).await;
    money.spend_cap_set(large, 10 * RATE).await;
    (small, [active(bank, small).await, active(bank, large).await, bank.active(SLICE).await])
}

async fn states(bank: &Bank, ids: [AllocationId; 3]) -> [String; 3] {
    [bank.state(ids[0]).await, bank.state(ids[1]).await, bank.state(ids[2]).await]
}

#[tokio::test]
async fn an_account_launches_only_as_far_as_its_cap_goes() {
    let bank = Bank::with(100 * RATE).await;
    bank.test.change_global_policy("billing.launch_hold_seconds", 1800).await;
    let ci = account(&bank, "ci").await;
    assert_eq!(launch(&bank, ci).await, Err("spend_cap".to_owned()), "no cap, no budget");
    let money = TestMoney::new(&bank.test.db);
    money.spend_cap_set(ci, 2 * HOLD - 1).await;
    launch(&bank, ci).await.unwrap();
    assert_eq!(launch(&bank, ci).await, Err("spend_cap".to_owned()));
    money.spend_cap_set(ci, 2 * HOLD).await;
    launch(&bank, ci).await.unwrap();
    assert_eq!(launch(&bank, ci).await, Err("spend_cap".to_owned()));
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn a_spent_cap_releases_the_machines_of_its_account_and_of_nobody_else() {
    let bank = Bank::with(100 * RATE).await;
    bank.test.change_global_policy("billing.launch_hold_seconds", 1800).await;
    let (_, ids) = running(&bank).await;
    bank.later(1860);
    TestMoney::new(&bank.test.db).accrue().await;
    assert_eq!(bank.events("billing.spend_cap_reached").await, 1);
    bank.deliver().await;
    assert_eq!(states(&bank, ids).await, ["releasing", "active", "active"]);
    assert_eq!(bank.drive(&ids[0].to_string()).await, "succeeded");
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn a_spent_cap_releases_though_the_event_was_lost_and_not_when_it_was_raised() {
    let bank = Bank::with(100 * RATE).await;
    bank.test.change_global_policy("billing.launch_hold_seconds", 1800).await;
    let (small, ids) = running(&bank).await;
    bank.later(1860);
    let money = TestMoney::new(&bank.test.db);
    money.accrue().await;
    bank.later(1);
    money.spend_cap_set(small, 10 * RATE).await;
    bank.deliver().await;
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 0, "it was raised");
    assert_eq!(states(&bank, ids).await, ["active", "active", "active"]);
    bank.later(1);
    money.spend_cap_set(small, HOLD).await;
    money.accrue().await;
    assert_eq!(release_overdue(&bank.capacity).await.unwrap(), 1, "nobody was told again");
    assert_eq!(states(&bank, ids).await, ["releasing", "active", "active"]);
}
