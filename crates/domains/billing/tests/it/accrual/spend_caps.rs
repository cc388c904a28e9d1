//! Spend caps of service accounts: what counts, what is refused, and that reaching one is told once a month.

use std::sync::Arc;

use billing::{
    api::{Launch, must_release_account, spend_caps_overdue},
    service::spend_caps::{AccountPlace, spend_cap_get},
};
use kernel::{
    CorrelationId, Failure,
    ids::{AllocationId, ServiceAccountId},
};
use pg::{Origin, Permit};
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
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
async fn a_cap_counts_from_when_it_was_set_and_a_lower_one_holds_at_once() {
    let kit = Kit::new().await;
    let ci = kit.account("ci").await;
    let machine = started(&kit, ci, 3600).await;
    kit.pass(120);
    kit.tick().await;
    kit.money.spend_cap_set(ci, 200).await;
    assert_eq!(cap(&kit, ci).await, (0, 200, false));
    kit.pass(60);
    kit.tick().await;
    assert_eq!(cap(&kit, ci).await, (60, 140, false));
    kit.pass(1);
    kit.money.spend_cap_set(ci, 50).await;
    assert_eq!((cap(&kit, ci).await, must_release(&kit, ci).await), ((61, 0, false), true));
    assert_eq!(refused(&kit, &launch_by(&kit, ci, 1)).await.as_deref(), Some("spend_cap"));
    kit.close(machine).await;
    kit.tick().await;
    assert_eq!((cap(&kit, ci).await.0, kit.events_emitted("spend_cap_reached").await), (61, 1));
}

#[tokio::test]
async fn what_is_given_back_for_a_fault_is_not_spent() {
    let kit = Kit::new().await;
    let ci = kit.account("ci").await;
    kit.money.spend_cap_set(ci, 1000).await;
    let machine = started(&kit, ci, 3600).await;
    kit.pass(480);
    kit.tick().await;
    kit.pause(machine, 100).await;
    assert_eq!(cap(&kit, ci).await, (380, 620, false));
    kit.pass(60);
    assert_eq!(cap(&kit, ci).await, (380, 620, false), "nothing is used while it stands still");
    kit.resume(machine).await;
    kit.pass(20);
    kit.close(machine).await;
    assert_eq!(cap(&kit, ci).await, (400, 600, false), "closed and not settled");
    kit.tick().await;
    assert_eq!(cap(&kit, ci).await, (400, 600, false));
    kit.holds().await;
}

#[tokio::test]
async fn of_five_launches_at_once_as_many_succeed_as_the_cap_covers() {
    let kit = Arc::new(Kit::new().await);
    kit.policy("billing.launch_hold_seconds", 600).await;
    let ci = kit.account("ci").await;
    kit.money.spend_cap_set(ci, 3 * 600 + 599).await;
    let running: Vec<_> = (0..5)
        .map(|_| {
            let kit = kit.clone();
            tokio::spawn(async move { refused(&kit, &launch_by(&kit, ci, 3600)).await })
        })
        .collect();
    let mut launched = 0;
    for one in running {
        match one.await.unwrap().as_deref() {
            None => launched += 1,
            reason => assert_eq!(reason, Some("spend_cap")),
        }
    }
    assert_eq!((launched, cap(&kit, ci).await), (3, (0, 599, false)));
    kit.holds().await;
}

#[derive(Clone, Debug)]
enum Step {
    Launch { account: usize, price: i64, members: usize },
    Pass(i64),
    Tick,
    Pause(usize),
    Resume(usize),
    Close(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..2usize, 0..20_000i64, 1..3usize)
            .prop_map(|(account, price, members)| Step::Launch { account, price, members }),
        4 => (1..400i64).prop_map(Step::Pass),
        3 => Just(Step::Tick),
        1 => (0..8usize).prop_map(Step::Pause),
        1 => (0..8usize).prop_map(Step::Resume),
        2 => (0..8usize).prop_map(Step::Close),
    ]
}

/// Whatever happens, what an account has spent is what its own meters were charged.
#[tokio::test]
async fn what_was_spent_is_what_the_meters_of_the_account_were_charged() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..6 {
        let kit = Kit::new().await;
        kit.policy("billing.launch_hold_seconds", 300).await;
        let accounts = [kit.account("one").await, kit.account("two").await];
        for account in accounts {
            kit.money.spend_cap_set(account, 1_000_000_000).await;
        }
        let mut machines: Vec<(AllocationId, bool, bool)> = Vec::new();
        for step in prop::collection::vec(step(), 25).new_tree(&mut runner).unwrap().current() {
            match step {
                Step::Launch { account, price, members } => {
                    let mut launch = launch_by(&kit, accounts[account], price);
                    launch.allocations = (0..members).map(|_| kit.test.db.ambient().id()).collect();
                    // The balance may be used up.
                    if let Ok(made) = kit.money.launch(launch).await {
                        machines.extend(made.into_iter().map(|id| (id, false, true)));
                    }
                }
                Step::Pass(seconds) => kit.pass(seconds),
                Step::Tick => drop(kit.tick().await),
                Step::Pause(n) => {
                    if let Some((id, paused @ false, true)) = machines.get_mut(n) {
                        kit.pause(*id, 10).await;
                        *paused = true;
                    }
                }
                Step::Resume(n) => {
                    if let Some((id, paused @ true, true)) = machines.get_mut(n) {
                        kit.resume(*id).await;
                        *paused = false;
                    }
                }
                Step::Close(n) => {
                    if let Some((id, false, open @ true)) = machines.get_mut(n) {
                        kit.close(*id).await;
                        *open = false;
                    }
                }
            }
        }
        kit.tick().await;
        for account in accounts {
            let id = account.account.uuid();
            let charged =
                format!("SELECT coalesce(sum(posted_minor), 0)::bigint FROM meters WHERE person_id = '{id}'");
            let posted = format!(
                "SELECT spent FROM spend_cap_spending(ARRAY['{}'::uuid], ARRAY['{id}'::uuid], '{}')",
                kit.org.uuid(),
                kit.now().to_rfc3339()
            );
            assert_eq!(kit.one::<i64>(&posted).await, kit.one::<i64>(&charged).await);
        }
        kit.holds().await;
    }
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
