//! Our books against the provider's.

use chrono::TimeDelta;
use payments::{provider::ProviderError, service::reconcile};

use crate::kit::Kit;

pub async fn compare(kit: &Kit) -> (String, i64, i64, i64) {
    let mut tx = kit.write(kit.admin()).await;
    let today = kit.now().date_naive();
    reconcile::request(&kit.payments, &mut tx, today).await.unwrap();
    tx.commit(None).await.unwrap();
    while reconcile::compare_next(&kit.payments).await.unwrap() {}
    let count = async |what: &str| kit.one::<i64>(&format!("SELECT {what} FROM payment_days")).await;
    let state: String = kit.one("SELECT state FROM payment_days").await;
    (state, count("missing").await, count("extra").await, count("different").await)
}

pub async fn open(kit: &Kit) -> Vec<String> {
    kit.one(
        "SELECT coalesce(array_agg(kind || ' ' || subject ORDER BY kind, subject), '{}') FROM billing_findings
         WHERE resolved_at IS NULL",
    )
    .await
}

#[tokio::test]
async fn a_missing_an_extra_and_a_different_payment_are_found_named_and_not_mended() {
    let kit = Kit::new().await;
    for (at, amount) in [1000, 2000, 3000, 4000].into_iter().enumerate() {
        kit.paid(amount, &format!("pi_{at}")).await;
    }
    let all: Vec<(String, i64)> = (0..4_i64).map(|at| (format!("pi_{at}"), 1000 * (at + 1))).collect();
    kit.provider.desk().listed = all.clone();
    assert_eq!(compare(&kit).await, ("clean".to_owned(), 0, 0, 0));
    {
        let mut desk = kit.provider.desk();
        desk.listed.remove(0);
        desk.listed[0].1 = 2001;
        desk.listed.push(("pi_made_up".to_owned(), 7));
        desk.listed_refunds.push(("re_made_up".to_owned(), 8));
    }
    let findings = [
        "provider_amount payment pi_1",
        "provider_extra payment pi_made_up",
        "provider_extra refund re_made_up",
        "provider_missing payment pi_0",
    ];
    for _ in 0..2 {
        assert_eq!(compare(&kit).await, ("different".to_owned(), 1, 2, 1));
        assert_eq!(open(&kit).await, findings);
    }
    assert_eq!(kit.has().await, (10_000, 0));
    let told: i64 =
        kit.one("SELECT count(*) FROM outbox_events WHERE event_type = 'payments.reconcile_failed'").await;
    assert_eq!(told, 2);
    kit.provider.desk().listed = all;
    kit.provider.desk().listed_refunds.clear();
    assert_eq!(compare(&kit).await, ("clean".to_owned(), 0, 0, 0));
    assert!(open(&kit).await.is_empty());
}

#[tokio::test]
async fn past_days_are_compared_by_themselves_once_and_a_provider_that_is_away_is_asked_again() {
    let kit = Kit::new().await;
    assert_eq!(reconcile::request_past(&kit.payments).await.unwrap(), 7);
    assert_eq!(reconcile::request_past(&kit.payments).await.unwrap(), 0);
    kit.provider.desk().faults.push(ProviderError::Unavailable("gone".to_owned()));
    while reconcile::compare_next(&kit.payments).await.unwrap() {}
    let waiting: i64 = kit.one("SELECT count(*) FROM payment_days WHERE state = 'requested'").await;
    assert_eq!(waiting, 1);
    kit.pass(TimeDelta::minutes(2));
    while reconcile::compare_next(&kit.payments).await.unwrap() {}
    assert_eq!(kit.states("payment_days").await, ["clean"; 7]);
    kit.pass(TimeDelta::days(1));
    assert_eq!(reconcile::request_past(&kit.payments).await.unwrap(), 1);
}
