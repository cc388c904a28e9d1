//! How organizations stand, and what people are told.

use billing::model::balance::BalanceState;
use testmoney::launch_request;

use super::kit::Kit;

/// An organization with so much and one meter that costs a minor unit each second.
async fn with(total: i64) -> Kit {
    let kit = Kit::new().await;
    kit.fund(kit.org, total - 1_000_000).await;
    kit.launch(3600, 1).await;
    kit
}

#[tokio::test]
async fn a_balance_that_runs_out_is_told_of_once_in_each_state() {
    let kit = with(700).await;
    for _ in 0..11 {
        kit.pass(60);
        kit.tick().await;
    }
    assert_eq!(kit.state().await, "auto_release_pending");
    let told = |event: &'static str| kit.events_emitted(event);
    assert_eq!((told("low_balance_warning").await, told("auto_release_pending").await), (1, 1));
    assert_eq!(told("balance_depleted").await, 0);
    // In the second in which it ends, and not at the end of the window.
    kit.pass(40);
    kit.tick().await;
    assert_eq!((kit.state().await, kit.total().await), ("depleted".to_owned(), 0));
    kit.pass(60);
    kit.tick().await;
    assert_eq!((told("balance_depleted").await, told("low_balance_warning").await), (1, 1));
    kit.holds().await;
}

#[tokio::test]
async fn a_top_up_restores_at_once_and_the_next_fall_is_told_again() {
    let kit = with(400).await;
    kit.pass(60);
    kit.tick().await;
    assert_eq!(
        (kit.state().await, kit.events_emitted("low_balance_warning").await),
        ("low_balance".to_owned(), 1)
    );
    kit.fund(kit.org, 200).await;
    assert_eq!((kit.state().await, kit.events_emitted("balance_restored").await), ("healthy".to_owned(), 1));
    kit.pass(60);
    kit.tick().await;
    assert_eq!(
        (kit.state().await, kit.events_emitted("low_balance_warning").await),
        ("low_balance".to_owned(), 2)
    );
    kit.holds().await;
}

#[tokio::test]
async fn the_end_is_projected_to_the_second_and_moves_with_what_runs() {
    let kit = with(10_000).await;
    kit.pass(60);
    kit.tick().await;
    let end = "SELECT extract(epoch FROM projected_depletion_at - '2031-05-06T07:00:00Z')::bigint FROM billing_accounts";
    assert_eq!(kit.one::<i64>(end).await, 10_000);
    let second = kit.launch(3600, 1).await;
    kit.pass(60);
    kit.tick().await;
    assert_eq!(kit.one::<i64>(end).await, 60 + 9_940 / 2);
    kit.close(second).await;
    kit.tick().await;
    assert_eq!(kit.one::<i64>(end).await, 120 + 9_820);
}

#[tokio::test]
async fn a_balance_does_not_fall_below_nothing_by_more_than_a_window() {
    let kit = with(1_000).await;
    // A hundred minor units a second, all of a sudden.
    kit.launch(360_000, 1).await;
    kit.pass(60);
    kit.tick().await;
    assert_eq!(kit.state().await, "depleted");
    assert!(kit.total().await >= -60 * 101, "{}", kit.total().await);
    kit.holds().await;
}

#[tokio::test]
async fn what_ends_soon_and_then_stops_is_not_looked_at_for_ever() {
    let kit = with(100).await;
    kit.pass(60);
    kit.tick().await;
    assert_eq!(kit.state().await, "auto_release_pending");
    let meter: uuid::Uuid = kit.one("SELECT allocation_id FROM meters").await;
    kit.pause(meter.into(), 0).await;
    kit.pass(120);
    kit.tick().await;
    assert_eq!((kit.state().await, kit.total().await), ("low_balance".to_owned(), 40));
    let pending = "SELECT count(*) FROM billing_accounts WHERE projected_depletion_at IS NOT NULL";
    assert_eq!(kit.one::<i64>(pending).await, 0);
    kit.holds().await;
}

async fn promo(kit: &Kit, amount: i64) {
    let mut tx = kit.write("test.promo").await;
    let lines = vec![
        billing::api::Line::new(billing::api::Account::Promo, amount),
        billing::api::Line::new(billing::api::Account::CreditsGranted, -amount),
    ];
    let (kind, reason) = (billing::api::PostingKind::Promo, "welcome".to_owned());
    let posting =
        billing::api::Posting { org: kit.org, kind, reference: None, reason, corrects: None, lines };
    billing::api::post(&kit.billing, &mut tx, posting).await.unwrap();
    tx.commit(None).await.unwrap();
}

#[tokio::test]
async fn promotional_credit_is_used_before_money() {
    let kit = with(1_000).await;
    promo(&kit, 50).await;
    kit.pass(60);
    kit.tick().await;
    let last = |column| {
        kit.one::<i64>(if column {
            "SELECT promo_after FROM ledger_postings ORDER BY seq DESC LIMIT 1"
        } else {
            "SELECT prepaid_after FROM ledger_postings ORDER BY seq DESC LIMIT 1"
        })
    };
    assert_eq!((last(true).await, last(false).await), (0, 990));
    kit.holds().await;
}

#[tokio::test]
async fn promotional_credit_that_was_set_aside_goes_back_as_that_and_never_becomes_money() {
    let kit = Kit::new().await;
    kit.policy("billing.launch_hold_seconds", 3600).await;
    promo(&kit, 1_000).await;
    kit.fund(kit.org, 500 - 1_000_000).await;
    let first = kit.launch(600, 1).await;
    let second = kit.launch(600, 1).await;
    let after =
        "SELECT ARRAY[prepaid_after, held_after, promo_after] FROM ledger_postings ORDER BY seq DESC LIMIT 1";
    assert_eq!(kit.one::<Vec<i64>>(after).await, [300, 1_200, 0]);
    kit.pass(60);
    kit.close(first).await;
    kit.close(second).await;
    kit.tick().await;
    // A minute of each at 6.00 an hour. All of it was promotional: credit is set aside before money, and used before money
    // of what is set aside.
    assert_eq!(kit.one::<Vec<i64>>(after).await, [500, 0, 980]);
    kit.holds().await;
}

#[tokio::test]
async fn a_launch_sets_promotional_credit_aside_before_money_and_gives_it_back_as_that() {
    let kit = Kit::new().await;
    kit.policy("billing.launch_hold_seconds", 3600).await;
    promo(&kit, 400).await;
    let after =
        "SELECT ARRAY[prepaid_after, held_after, promo_after] FROM ledger_postings ORDER BY seq DESC LIMIT 1";
    let machine = kit.launch(600, 1).await;
    assert_eq!(kit.one::<Vec<i64>>(after).await, [999_800, 600, 0]);
    // Half an hour costs 300: all of it credit, and the rest of the credit is still that.
    kit.pass(1800);
    kit.close(machine).await;
    kit.tick().await;
    assert_eq!(kit.one::<Vec<i64>>(after).await, [1_000_000, 0, 100]);
    // A launch that fails gives back what it set aside, each as it was.
    let launch = launch_request(&kit.test.db, (kit.org, kit.project), 600, 1);
    kit.money.hold(&launch).await.unwrap();
    kit.money.launch_fail(launch.allocations[0]).await;
    assert_eq!(kit.one::<Vec<i64>>(after).await, [1_000_000, 0, 100]);
    kit.holds().await;
}

#[tokio::test]
async fn what_goes_back_is_promotional_for_the_time_that_was_paid_with_it_and_money_for_the_rest() {
    let kit = Kit::new().await;
    kit.policy("billing.launch_hold_seconds", 3600).await;
    promo(&kit, 50).await;
    let after =
        "SELECT ARRAY[prepaid_after, held_after, promo_after] FROM ledger_postings ORDER BY seq DESC LIMIT 1";
    let (start, machine) = (kit.now(), kit.launch(100, 1).await);
    for _ in 0..2 {
        kit.pass(1800);
        kit.tick().await;
    }
    // All that was set aside was used: half of it promotional, which went first.
    assert_eq!(kit.one::<Vec<i64>>(after).await, [999_950, 0, 0]);
    let half = start + chrono::TimeDelta::seconds(1800);
    kit.sick(machine, start, Some(half)).await;
    assert_eq!(kit.one::<Vec<i64>>(after).await, [999_950, 0, 50]);
    kit.sick(machine, half, Some(kit.now())).await;
    assert_eq!(kit.one::<Vec<i64>>(after).await, [1_000_000, 0, 50]);
    kit.holds().await;
}

/// At the highest price, what is used in 26 hours has more parts than a bigint holds.
#[tokio::test]
async fn use_that_no_number_holds_ends_the_balance_and_fails_no_evaluation() {
    let kit = Kit::new().await;
    for _ in 0..2 {
        kit.launch(1_000_000_000, 100_000).await;
    }
    kit.pass(26 * 3600);
    kit.fund(kit.org, 1).await;
    assert_eq!(kit.state().await, "auto_release_pending");
}

/// 600.00 an hour on 100.00: nobody has to wait for a window to be accrued.
#[tokio::test]
async fn a_balance_is_right_the_moment_something_starts_and_stops() {
    let kit = Kit::new().await;
    kit.fund(kit.org, 10_000 - 1_000_000).await;
    kit.tick().await;
    let began = kit.now();
    let machine = kit.launch(60_000, 1).await;
    let balance = kit.balance().await;
    assert_eq!((balance.burn_per_hour_minor, balance.unposted_minor), (60_000, 0));
    assert_eq!(balance.projected_depletion_at.map(|at| (at - began).num_seconds()), Some(600));
    assert_eq!(balance.state, BalanceState::Healthy);
    kit.pass(545);
    let balance = kit.balance().await;
    assert_eq!((balance.total_minor, balance.unposted_minor), (10_000, 9_083));
    assert_eq!(balance.projected_depletion_at.map(|at| (at - began).num_seconds()), Some(600));
    assert_eq!((balance.state, balance.state_changed_at), (BalanceState::AutoReleasePending, None));
    kit.close(machine).await;
    let balance = kit.balance().await;
    assert_eq!((balance.burn_per_hour_minor, balance.projected_depletion_at), (0, None));
    assert_eq!((balance.unposted_minor, balance.state), (9_083, BalanceState::Healthy));
    kit.policy("billing.low_balance_threshold_minor", 917).await;
    assert_eq!(kit.balance().await.state, BalanceState::LowBalance);
    kit.tick().await;
    let balance = kit.balance().await;
    assert_eq!((balance.total_minor, balance.unposted_minor), (917, 0));
}
