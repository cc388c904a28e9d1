//! For what time and to whom credits go: bounded by what the gateway saw, each second once, promotional as promotional.

use billing::api::{Account, Line, Posting, PostingKind};
use capacity::service::launch::{Creator, Wanted, launch};
use chrono::{DateTime, TimeDelta};
use kernel::ids::{AllocationId, NodeId};
use testmoney::TestMoney;

use super::{
    bank::{self, Bank, RATE},
    credits::{GPU, billed_between, cost, finding_report, found, node, now, resolved},
    kit::SLICE,
};

/// A launch on what machines there are.
async fn active_again(bank: &Bank) -> AllocationId {
    let mut tx = bank.as_creator().await;
    let creator = Creator::user(bank.org, bank.project, bank.creator);
    let wanted =
        Wanted { sku: SLICE.to_owned(), gpus: None, profile: None, region: None, name: None, image: None };
    let id = launch(&bank.capacity, &mut tx, creator, wanted).await.unwrap().made.id;
    tx.commit(None).await.unwrap();
    assert_eq!(bank.drive(&id.to_string()).await, "succeeded");
    id
}

/// An operator has seen to it: the node serves again.
async fn back_in_service(bank: &Bank, node: NodeId) {
    let node = node.uuid();
    bank.sql(&format!(
        "UPDATE nodes SET cordon_reason = NULL WHERE id = '{node}';
         UPDATE node_resource_slots SET health = 'healthy' WHERE node_id = '{node}'"
    ))
    .await;
}

#[tokio::test]
async fn a_finding_from_1970_gives_nothing_to_whoever_was_there_before() {
    let bank = Bank::with(100 * RATE).await;
    let first = bank.active(SLICE).await;
    let host = node(&bank, first).await;
    bank.later(2_000);
    bank.released(first).await;
    let paid = bank.charged(first).await;
    bank.later(50_000);
    let second = active_again(&bank).await;
    assert_eq!(node(&bank, second).await, host);
    bank.later(100);
    let heard = now(&bank) - TimeDelta::seconds(10);
    finding_report(&bank, host, "node", "xid.79", DateTime::UNIX_EPOCH, Some(heard)).await;
    bank.deliver().await;
    bank.accrue().await;
    assert_eq!(bank.charged(first).await, paid);
    assert_eq!(bank.waiting().await.len(), 0);
    assert_eq!(
        (bank.meter(second).await.as_str(), bank.charged(second).await),
        ("paused", 0),
        "from when it was active on"
    );
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn no_more_than_the_policy_before_the_previous_report_is_given_back() {
    let bank = Bank::with(100 * RATE).await;
    bank.test.set_global_policy("fleet.finding_backdate_seconds", "60").await;
    let id = bank.active(SLICE).await;
    bank.later(5_000);
    let heard = now(&bank);
    bank.later(10);
    bank.accrue().await;
    finding_report(&bank, node(&bank, id).await, GPU, "xid.79", DateTime::UNIX_EPOCH, Some(heard)).await;
    bank.deliver().await;
    let paid = billed_between(&bank, id).await;
    assert!((4_939..=4_943).contains(&paid), "{paid}");
    assert_eq!(bank.charged(id).await, cost(paid));
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn who_came_after_the_fault_was_resolved_is_not_credited_however_late_it_is_heard() {
    let bank = Bank::with(100 * RATE).await;
    let host = bank.machine().await;
    let finding = found(&bank, host, "node", "xid.79", now(&bank)).await;
    bank.later(30);
    resolved(&bank, finding).await;
    back_in_service(&bank, host).await;
    bank.later(30);
    let id = active_again(&bank).await;
    bank.later(900);
    bank.accrue().await;
    bank.deliver().await;
    bank.accrue().await;
    let all = billed_between(&bank, id).await;
    assert!(all >= 900);
    assert_eq!((bank.meter(id).await.as_str(), bank.charged(id).await), ("open", cost(all)));
    assert_eq!(bank.one::<i64>("SELECT count(*) FROM meter_pauses").await, 0);
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn an_earlier_fault_that_is_heard_of_later_gives_back_the_time_before_the_first() {
    let bank = Bank::with(100 * RATE).await;
    let id = bank.active(SLICE).await;
    let host = node(&bank, id).await;
    bank.later(500);
    let early = now(&bank);
    bank.later(500);
    let first = found(&bank, host, GPU, "xid.79", now(&bank)).await;
    bank.deliver().await;
    bank.later(100);
    assert!(bank.charged(id).await >= cost(1_000));
    let second = found(&bank, host, "node", "xid.79", early).await;
    bank.deliver().await;
    let charged = bank.charged(id).await;
    assert!((cost(500)..=cost(503)).contains(&charged), "{charged}");
    assert_eq!(bank.meter(id).await, "paused");
    resolved(&bank, first).await;
    bank.deliver().await;
    assert_eq!(bank.meter(id).await, "paused", "the second lasts");
    resolved(&bank, second).await;
    bank.deliver().await;
    assert_eq!(bank.meter(id).await, "open");
    bank.later(200);
    // One that is over already, in the middle of what was paid for.
    let past = found(&bank, host, "node", "xid.95", early - TimeDelta::seconds(100)).await;
    bank.sql(&format!(
        "UPDATE health_findings SET state = 'resolved', updated_at = '{}' WHERE id = '{}'",
        (early - TimeDelta::seconds(60)).to_rfc3339(),
        past.uuid()
    ))
    .await;
    bank.deliver().await;
    bank.accrue().await;
    let free: i64 =
        bank.one("SELECT sum(extract(epoch FROM resumed_at - since))::bigint FROM meter_pauses").await;
    assert!((640..=645).contains(&free), "{free}");
    assert_eq!(bank.charged(id).await, cost(billed_between(&bank, id).await - free), "exact to the second");
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn every_second_of_any_faults_is_given_back_once_in_whatever_order_they_are_heard_of() {
    let bank = Bank::with(1_000 * RATE).await;
    for seed in 0..12_u64 {
        let mut state = seed * 2 + 1;
        // A linear congruential generator: the same faults in every run.
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((state >> 33) % below).unwrap()
        };
        let id = bank.active(SLICE).await;
        let host = node(&bank, id).await;
        let opened = billed_from(&bank, id).await;
        bank.later(1_000);
        if random(2) == 0 {
            bank.accrue().await;
        }
        let mut sick = vec![false; 1_000];
        for n in 0..4 {
            let (from, length) = (random(900), 1 + random(399));
            let (since, to) = (opened + TimeDelta::seconds(from), (from + length).min(1_000));
            let finding = found(&bank, host, "node", "xid.79", since).await;
            bank.sql(&format!(
                "UPDATE health_findings SET state = 'resolved', updated_at = '{}' WHERE id = '{}'",
                (opened + TimeDelta::seconds(to)).to_rfc3339(),
                finding.uuid()
            ))
            .await;
            sick[from as usize..to as usize].fill(true);
            bank.deliver().await;
            if n == 1 && random(2) == 0 {
                bank.released(id).await;
            }
            for adjustment in bank.waiting().await {
                bank.approved(adjustment.id).await.unwrap();
            }
        }
        bank.accrue().await;
        let free = sick.iter().filter(|sick| **sick).count() as i64;
        assert_eq!(bank.charged(id).await, cost(billed_between(&bank, id).await - free), "seed {seed}");
        bank::hold(&bank.test).await;
    }
}

async fn billed_from(bank: &Bank, id: AllocationId) -> DateTime<chrono::Utc> {
    bank.one(&format!("SELECT opened_at FROM meters WHERE allocation_id = '{}'", id.uuid())).await
}

/// Promotional credit, as an administrator gives it.
async fn promote(bank: &Bank, amount: i64) {
    let posting = Posting {
        org: bank.org,
        kind: PostingKind::Promo,
        reference: None,
        reason: "a test".to_owned(),
        corrects: None,
        lines: vec![Line::new(Account::Promo, amount), Line::new(Account::CreditsGranted, -amount)],
    };
    TestMoney::new(&bank.test.db).post(posting).await;
}

#[tokio::test]
async fn promotional_credit_comes_back_as_promotional_credit_and_money_as_money() {
    let bank = Bank::with(10 * RATE).await;
    promote(&bank, 3 * RATE).await;
    let id = bank.active(SLICE).await;
    let opened = billed_from(&bank, id).await;
    // Two hours of promotional credit, one of which was set aside.
    bank.later(7_200);
    bank.accrue().await;
    let before = bank.balances().await;
    assert_eq!(before.prepaid_minor, 10 * RATE, "no money was used: {before:?}");
    let finding = found(&bank, node(&bank, id).await, GPU, "xid.79", opened).await;
    bank.deliver().await;
    let after = bank.balances().await;
    assert_eq!(after.prepaid_minor, 10 * RATE, "and none comes back: {after:?}");
    assert_eq!(after.promo_minor, 3 * RATE);

    // Six hours: three of promotional credit, then money. Only the last half hour was sick.
    resolved(&bank, finding).await;
    bank.deliver().await;
    bank.later(6 * 3_600);
    bank.accrue().await;
    let before = bank.balances().await;
    assert_eq!(before.promo_minor, 0);
    assert!(before.prepaid_minor < 7 * RATE + 3, "{before:?}");
    let since = now(&bank) - TimeDelta::seconds(1_800);
    found(&bank, node(&bank, id).await, GPU, "xid.95", since).await;
    bank.deliver().await;
    let after = bank.balances().await;
    assert_eq!(after.promo_minor, 0, "that time was paid for with money: {after:?}");
    assert!(
        (RATE / 2 - 1..=RATE / 2 + 1).contains(&(after.prepaid_minor - before.prepaid_minor)),
        "{after:?}"
    );
    bank::hold(&bank.test).await;
}
