//! What is decided about the money of a launch before it, and what the database decides when it is made.

use billing::{
    api::{Launch, LaunchFunds, launch_funds},
    model::{balance::BalanceState, budget_resource::BudgetWanted},
};
use events::billing::BudgetAction;
use kernel::{CorrelationId, Failure};
use pg::{Origin, Permit};
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use testmoney::launch_request;

use super::kit::Kit;

async fn funds(kit: &Kit, launch: &Launch) -> LaunchFunds {
    let origin = Origin::internal(CorrelationId(kit.test.db.ambient().uuid()));
    let mut read = kit.test.db.read(&Permit::system("test", origin)).await.unwrap();
    launch_funds(&kit.billing, read.conn(), (kit.org, kit.project), launch.person).await.unwrap()
}

/// What the database sets aside, or why not.
async fn hold_amount(kit: &Kit, launch: &Launch) -> Result<i64, String> {
    let before = kit.money.balances(kit.org).await.held_minor;
    match kit.money.hold(launch).await {
        Ok(()) => Ok(kit.money.balances(kit.org).await.held_minor - before),
        Err(Failure::Problem(problem)) => Err(problem.details["reason"].as_str().unwrap().to_owned()),
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_decided_before_a_launch_is_what_the_database_decides() {
    let kit = Kit::new().await;
    kit.fund(kit.org, -1_000_000).await;
    let place = (kit.org, kit.project);
    let mut runner = TestRunner::deterministic();
    let any = (
        (-2_000..4_000i64, prop_oneof![Just(0i64), 1..7_200i64]),
        (prop_oneof![Just(0i64), 1..3_000i64], 1..9i32, 1..4usize),
        (0..8u8, 0..8u8, prop_oneof![3 => Just(None), 2 => (1..3_000i64).prop_map(Some)]),
    );
    let account = kit.account("ci").await;
    let mut outcomes = std::collections::BTreeSet::new();
    for _ in 0..80 {
        let ((amount, hold), (price, units, members), (budget, euros, cap)) =
            any.new_tree(&mut runner).unwrap().current();
        if amount != 0 {
            kit.fund(kit.org, amount).await;
        }
        kit.policy("billing.launch_hold_seconds", hold).await;
        let amount_minor = if budget == 0 { 1 } else { 1_000_000_000 };
        let wanted = BudgetWanted { amount_minor, threshold_percent: 100, action: BudgetAction::Block };
        kit.money.budget_set(place, wanted).await;
        if budget == 0 {
            kit.money.spend(place, 1).await;
        }
        let mut launch = launch_request(&kit.test.db, place, price, units);
        launch.allocations = (0..members).map(|_| kit.test.db.ambient().id()).collect();
        if euros == 0 {
            launch.currency = "EUR".to_owned();
        }
        if let Some(cap) = cap {
            kit.money.spend_cap_set(account, cap).await;
            launch.person = Some(account.account.uuid());
        }
        let known = funds(&kit, &launch).await;
        let decided = known.decide(launch.cost()).map_err(|refusal| refusal.reason().to_owned());
        let held = hold_amount(&kit, &launch).await;
        assert_eq!(decided, held, "{known:?} {launch:?}");
        outcomes.insert(held.err().unwrap_or_else(|| "held".to_owned()));
    }
    let all = ["budget_blocked", "currency", "funds", "held", "spend_cap"].map(str::to_owned);
    assert_eq!(outcomes, all.into_iter().collect());
}

#[tokio::test]
async fn when_the_balance_ends_is_said_before_a_launch_as_it_is_after_it() {
    let kit = Kit::new().await;
    kit.policy("billing.launch_hold_seconds", 600).await;
    let place = (kit.org, kit.project);
    let mut runner = TestRunner::deterministic();
    let any = ((0..600i64, 0..400_000i64), (0..100_000i64, 1..9i32, 1..4usize), 0..4u8);
    let mut warned = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let ((seconds, amount), (price, units, members), choice) =
            any.new_tree(&mut runner).unwrap().current();
        // What runs and what starts, whether it was posted or not.
        kit.pass(seconds);
        if choice > 1 {
            kit.tick().await;
        }
        kit.fund(kit.org, amount + 1).await;
        let mut launch = launch_request(&kit.test.db, place, price, units);
        launch.allocations = (0..members).map(|_| kit.test.db.ambient().id()).collect();
        let known = funds(&kit, &launch).await;
        if known.decide(launch.cost()).is_err() {
            continue;
        }
        let said = known.depletion(launch.cost());
        let started = kit.money.launch(launch).await.unwrap();
        // When more was used than there is, it ends now.
        let after = kit.balance().await;
        let over = (after.state == BalanceState::Depleted).then(|| kit.now());
        assert_eq!(said.map(|end| end.at), after.projected_depletion_at.or(over), "{known:?}");
        warned.extend(said.map(|end| end.is_soon));
        // A worker warns of what the launch was warned of, unless the balance is low for another reason.
        if said.is_some_and(|end| end.is_soon) {
            kit.evaluate().await;
            assert_ne!(kit.state().await, "healthy");
        }
        if choice == 0 {
            for machine in started {
                kit.close(machine).await;
            }
        }
    }
    assert_eq!(warned.len(), 2, "both with and without a warning");
}
