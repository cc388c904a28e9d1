//! Spend caps of service accounts: what counts, what is refused, and that reaching one is told once a month.

use billing::{
    api::{Launch, must_release_account, spend_caps_overdue},
    service::spend_caps::{AccountPlace, spend_cap_get},
};
use kernel::{
    CorrelationId, Failure,
    ids::{AllocationId, ServiceAccountId},
};
use pg::{Origin, Permit};
use testmoney::launch_request;
use uuid::Uuid;

use super::kit::Kit;

fn launch_by(kit: &Kit, account: AccountPlace, price: i64) -> Launch {
    let launch = launch_request(&kit.test.db, (kit.org, kit.project), price, 1);
    Launch { person: Some(account.account.uuid()), ..launch }
}

async fn started(kit: &Kit, account: AccountPlace, price: i64) -> AllocationId {
    kit.money.launch(launch_by(kit, account, price)).await.unwrap()[0]
}

/// The reason of the refusal, or nothing.
async fn refused(kit: &Kit, launch: &Launch) -> Option<String> {
    match kit.money.hold(launch).await {
        Ok(()) => None,
        Err(Failure::Problem(problem)) => Some(problem.details["reason"].as_str().unwrap().to_owned()),
        Err(other) => panic!("{other:?}"),
    }
}

/// What it spent, what is left, and whether it was reached.
async fn cap(kit: &Kit, account: AccountPlace) -> (i64, i64, bool) {
    let origin = Origin::internal(CorrelationId(kit.test.db.ambient().uuid()));
    let mut read = kit.test.db.read(&Permit::system("test", origin)).await.unwrap();
    let cap = spend_cap_get(&kit.billing, &mut read, account).await.unwrap();
    (cap.spent_minor, cap.left_minor, cap.reached_at.is_some())
}

async fn must_release(kit: &Kit, account: AccountPlace) -> bool {
    let mut tx = kit.write("test.release").await;
    let due = must_release_account(&mut tx, account.org, account.account).await.unwrap();
    tx.roll_back().await;
    due
}

async fn overdue(kit: &Kit) -> Vec<ServiceAccountId> {
    let mut upkeep = kit.test.db.upkeep("test").await.unwrap();
    let found = spend_caps_overdue(upkeep.conn(), Uuid::nil().into(), kit.now(), 10).await.unwrap();
    found.into_iter().map(|(_, account)| account).collect()
}

#[tokio::test]
async fn a_cap_counts_what_its_account_uses_and_nothing_of_others() {
    let kit = Kit::new().await;
    let (ci, other) = (kit.account("ci").await, kit.account("other").await);
    for account in [ci, other] {
        kit.money.spend_cap_set(account, 1000).await;
    }
    // One a second.
    started(&kit, ci, 3600).await;
    kit.launch(3600, 4).await;
    kit.pass(480);
    // Before anything is posted.
    assert_eq!((cap(&kit, ci).await, cap(&kit, other).await), ((480, 520, false), (0, 1000, false)));
    kit.tick().await;
    assert_eq!((cap(&kit, ci).await, cap(&kit, other).await), ((480, 520, false), (0, 1000, false)));
    assert!(!must_release(&kit, ci).await);
    kit.pass(520);
    kit.tick().await;
    assert_eq!(cap(&kit, ci).await, (1000, 0, true));
    assert_eq!((must_release(&kit, ci).await, must_release(&kit, other).await), (true, false));
    assert_eq!(overdue(&kit).await, [ci.account]);
    kit.pass(60);
    kit.tick().await;
    assert_eq!((kit.events_emitted("spend_cap_reached").await, cap(&kit, ci).await.0), (1, 1060));
    assert_eq!(refused(&kit, &launch_by(&kit, ci, 1)).await.as_deref(), Some("spend_cap"));
    assert_eq!(refused(&kit, &launch_by(&kit, ci, 0)).await, None, "what costs nothing is not capped");
    assert_eq!(refused(&kit, &launch_by(&kit, other, 1)).await, None);
    kit.holds().await;
}

#[tokio::test]
async fn what_is_set_aside_for_machines_of_the_account_is_not_left_for_more() {
    let kit = Kit::new().await;
    kit.policy("billing.launch_hold_seconds", 600).await;
    let ci = kit.account("ci").await;
    kit.money.spend_cap_set(ci, 1000).await;
    let first = started(&kit, ci, 3600).await;
    assert_eq!(cap(&kit, ci).await, (0, 400, false), "600 are set aside");
    kit.pass(300);
    assert_eq!(cap(&kit, ci).await, (300, 400, false), "and used from what was set aside");
    assert_eq!(refused(&kit, &launch_by(&kit, ci, 3600)).await.as_deref(), Some("spend_cap"));
    kit.close(first).await;
    kit.tick().await;
    assert_eq!(cap(&kit, ci).await, (300, 700, false), "the rest came back");
    assert_eq!(refused(&kit, &launch_by(&kit, ci, 3600)).await, None);
    kit.holds().await;
}

#[tokio::test]
async fn a_cap_that_is_raised_lets_launches_through_at_once_and_can_be_reached_again() {
    let kit = Kit::new().await;
    let ci = kit.account("ci").await;
    kit.money.spend_cap_set(ci, 100).await;
    started(&kit, ci, 3600).await;
    kit.pass(120);
    kit.tick().await;
    assert_eq!((cap(&kit, ci).await, must_release(&kit, ci).await), ((120, 0, true), true));
    kit.pass(1);
    kit.money.spend_cap_set(ci, 200).await;
    assert!(!must_release(&kit, ci).await);
    assert_eq!(refused(&kit, &launch_by(&kit, ci, 1)).await, None);
    kit.pass(59);
    kit.tick().await;
    assert!(!cap(&kit, ci).await.2);
    kit.pass(60);
    kit.tick().await;
    assert_eq!((cap(&kit, ci).await.2, kit.events_emitted("spend_cap_reached").await), (true, 2));
}

#[tokio::test]
async fn a_new_month_begins_with_nothing_spent() {
    let kit = Kit::new().await;
    let ci = kit.account("ci").await;
    kit.money.spend_cap_set(ci, 100).await;
    let machine = started(&kit, ci, 3600).await;
    kit.pass(120);
    kit.tick().await;
    kit.close(machine).await;
    kit.tick().await;
    assert_eq!(refused(&kit, &launch_by(&kit, ci, 1)).await.as_deref(), Some("spend_cap"));
    kit.pass(26 * 86_400);
    assert_eq!(cap(&kit, ci).await, (0, 100, false));
    assert_eq!(refused(&kit, &launch_by(&kit, ci, 1)).await, None);
    assert!(overdue(&kit).await.is_empty());
}

#[tokio::test]
async fn the_cap_of_a_deleted_account_still_ends_what_the_account_left_running() {
    let kit = Kit::new().await;
    let ci = kit.account("ci").await;
    kit.money.spend_cap_set(ci, 100).await;
    started(&kit, ci, 3600).await;
    let account = ci.account.uuid();
    kit.test.sql(&format!("DELETE FROM service_accounts WHERE id = '{account}'")).await;
    kit.pass(120);
    kit.tick().await;
    assert_eq!((must_release(&kit, ci).await, overdue(&kit).await), (true, vec![ci.account]));
}
