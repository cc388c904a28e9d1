//! Several workers at once, and everybody else who moves meters meanwhile.

use billing::{
    Billing, Settings,
    api::{Account, Line, Posting, PostingKind, post},
    service::accrual::tick,
};
use identity::api::Policies;
use kernel::{CorrelationId, Secret};
use pg::{Db, Origin, Permit};

use super::kit::{Kit, worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_that_race_charge_each_window_once() {
    let kit = Kit::new().await;
    let mut tenants = vec![kit.tenant];
    for n in 0..4 {
        tenants.push(kit.another_tenant(&format!("another-{n}"), 1_000_000).await);
    }
    let mut meters = Vec::new();
    for tenant in tenants {
        for price in [1234, 77, 3601] {
            meters.push((kit.launch_of(tenant, price, 3).await, price * 3));
        }
    }
    for _ in 0..12 {
        kit.pass(61);
        let workers = (0..3).map(|_| {
            let billing = worker(&kit.test);
            tokio::spawn(async move { tick(&billing).await.map(|ticked| ticked.windows).unwrap_or_default() })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.unwrap();
        }
        kit.holds().await;
    }
    kit.tick().await;
    for (meter, rate) in &meters {
        // 12 times 61 seconds, up to the last whole minute.
        assert_eq!(kit.posted(*meter).await, rate * 720 / 3600);
    }
    kit.holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn meters_that_end_or_stand_still_while_they_are_accrued_are_charged_to_the_second() {
    let kit = Kit::new().await;
    for round in 0..6 {
        let mut running = Vec::new();
        for _ in 0..6 {
            running.push(kit.launch(36_000, 1).await);
        }
        kit.pass(59 + round);
        let billing = worker(&kit.test);
        let worker = tokio::spawn(async move {
            for _ in 0..5 {
                tick(&billing).await.unwrap();
            }
        });
        for (n, meter) in running.iter().enumerate() {
            if n % 2 == 0 {
                kit.close(*meter).await;
            } else {
                kit.pause(*meter, 10).await;
            }
        }
        worker.await.unwrap();
        kit.pass(60);
        kit.tick().await;
        for (n, meter) in running.iter().enumerate() {
            let seconds = if n % 2 == 0 { 59 + round } else { 49 + round };
            assert_eq!(kit.posted(*meter).await, seconds * 10);
        }
        kit.holds().await;
    }
}

#[tokio::test]
async fn posting_needs_no_connection_but_its_own_though_no_policy_is_known() {
    let kit = Kit::new().await;
    // One connection: whoever asks for a second while having the first waits for itself.
    let db = Db::new(kit.test.connect.clone(), 1, 1, kit.test.db.ambient().clone());
    let settings = Settings { currency: "USD".to_owned(), checkpoint_seed: Secret::new([7; 32]) };
    let billing = Billing::new(db.clone(), Policies::new(db.clone()), settings);
    let origin = Origin::internal(CorrelationId(db.ambient().uuid()));
    let mut tx = db.write(Permit::system("test", origin), "test.post").await.unwrap();
    let posting = Posting {
        org: kit.org,
        kind: PostingKind::Topup,
        reference: None,
        reason: "test".to_owned(),
        corrects: None,
        lines: vec![Line::new(Account::Prepaid, 5), Line::new(Account::CashStripe, -5)],
    };
    assert!(post(&billing, &mut tx, posting).await.unwrap().is_some());
    tx.commit(None).await.unwrap();
    db.close();
}

#[tokio::test]
async fn one_organization_whose_meters_cannot_be_taken_back_keeps_no_other_from_being_accrued() {
    let kit = Kit::new().await;
    let other = kit.another_tenant("other", 1_000_000).await;
    let (spoiled, sound) = (kit.launch(3600, 1).await, kit.launch_of(other, 3600, 1).await);
    kit.pass(60);
    kit.tick().await;
    // It was accrued beyond its end, and its ledger takes nothing.
    kit.test
        .sql(&format!(
            "UPDATE meters SET state = 'closed', closed_at = accrued_until - interval '10 seconds' WHERE allocation_id = '{}';
             UPDATE ledger_chains SET currency = 'JPY' WHERE org_id = '{}'",
            spoiled.uuid(),
            kit.org.uuid()
        ))
        .await;
    kit.pass(60);
    assert_eq!(kit.try_tick().await.unwrap().rewound, 0);
    assert_eq!(kit.posted(sound).await, 120, "two minutes at a minor unit a second");
}
