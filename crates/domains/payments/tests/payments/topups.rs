//! From the wish to the balance.

use chrono::TimeDelta;
use kernel::{Failure, text::Reason};
use payments::model::topup::TopupState;
use payments::model::webhook::MessageState;
use payments::{
    Payments, Settings,
    provider::{Disabled, ProviderError},
    service::{checkouts, messages, topups},
};
use serde_json::json;

use crate::kit::{Kit, completed, message};

fn problem(failure: Failure) -> kernel::Problem {
    match failure {
        Failure::Problem(problem) => problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_top_up_is_opened_paid_and_credited_once() {
    let kit = Kit::new().await;
    let topup = kit.open(2500).await;
    assert_eq!((topup.state, topup.url.is_some()), (TopupState::Open, true));
    for event in ["evt_a", "evt_a", "evt_b"] {
        kit.message_receive(&completed(&topup, "pi_1", event)).await;
    }
    assert_eq!(kit.has().await, (2500, 0));
    assert_eq!(kit.topup_read(&topup).await.state, TopupState::Paid);
    assert_eq!(kit.states("payment_messages").await, ["processed", "processed"]);
    let told: i64 =
        kit.one("SELECT count(*) FROM outbox_events WHERE event_type = 'payments.balance_credited'").await;
    assert_eq!(told, 1);
}

#[tokio::test]
async fn amounts_outside_of_the_policy_and_an_installation_without_provider_are_refused() {
    let kit = Kit::new().await;
    for amount in [0, 999, 100_001] {
        assert_eq!(problem(kit.topup(amount).await.unwrap_err()).code.status(), 422);
    }
    let policies = billing::api::Policies::new(kit.test.db.clone());
    let settings =
        billing::Settings { currency: "USD".to_owned(), checkpoint_seed: kernel::Secret::new([7; 32]) };
    let billing = billing::api::Billing::new(kit.test.db.clone(), policies.clone(), settings);
    let settings = Settings { webhook_secrets: Vec::new(), public_url: "https://gpuaas.test".to_owned() };
    let disabled = Payments::new(
        kit.test.db.clone(),
        billing,
        std::sync::Arc::new(policies),
        std::sync::Arc::new(Disabled),
        settings,
    );
    let mut tx = kit.write(kit.owner()).await;
    let refused = problem(topups::create(&disabled, &mut tx, kit.org, 5000).await.unwrap_err());
    assert_eq!(refused.code.status(), 422);
    assert!(refused.suggestion.unwrap().contains("operators"));
}

#[tokio::test]
async fn a_provider_that_is_away_is_asked_again_and_one_that_refuses_is_not() {
    let kit = Kit::new().await;
    kit.provider.desk().faults.push(ProviderError::Unavailable("gone".to_owned()));
    let topup = kit.open(2500).await;
    assert_eq!(topup.state, TopupState::Created);
    assert!(!checkouts::advance_next(&kit.payments).await.unwrap(), "not before its time");
    kit.pass(TimeDelta::seconds(3));
    assert!(checkouts::advance_next(&kit.payments).await.unwrap());
    assert_eq!(kit.topup_read(&topup).await.state, TopupState::Open);

    kit.provider.desk().faults.push(ProviderError::Refused("card_declined".to_owned()));
    let refused = kit.open(3000).await;
    assert_eq!(refused.state, TopupState::Failed);
    assert!(refused.state_reason.contains("card_declined"));

    kit.provider.desk().faults.extend((0..50).map(|_| ProviderError::Unavailable("gone".to_owned())));
    let given_up = kit.topup(4000).await.unwrap();
    for _ in 0..20 {
        kit.pass(TimeDelta::seconds(301));
        while checkouts::advance_next(&kit.payments).await.unwrap() {}
    }
    assert_eq!(kit.topup_read(&given_up).await.state, TopupState::Failed, "there is an end to it");
}

#[tokio::test]
async fn a_payment_that_nobody_tells_of_is_found_by_looking() {
    let kit = Kit::new().await;
    let topup = kit.open(2500).await;
    {
        let mut desk = kit.provider.desk();
        desk.sessions[0]["status"] = "complete".into();
        desk.sessions[0]["payment_status"] = "paid".into();
        desk.sessions[0]["payment_intent"] = "pi_1".into();
    }
    assert!(!checkouts::advance_next(&kit.payments).await.unwrap());
    kit.pass(TimeDelta::minutes(6));
    assert!(checkouts::advance_next(&kit.payments).await.unwrap());
    assert_eq!(kit.has().await, (2500, 0));
    // And the message, when it comes after all, credits nothing more.
    kit.message_receive(&completed(&topup, "pi_1", "evt")).await;
    assert_eq!(kit.has().await, (2500, 0));
}

#[tokio::test]
async fn a_canceled_top_up_ends_at_the_provider_and_what_was_paid_before_is_credited() {
    let kit = Kit::new().await;
    let (one, other) = (kit.open(2500).await, kit.open(3000).await);
    kit.provider.desk().sessions[1]["status"] = "complete".into();
    kit.provider.desk().sessions[1]["payment_status"] = "paid".into();
    kit.provider.desk().sessions[1]["payment_intent"] = "pi_2".into();
    for topup in [&one, &other] {
        let mut tx = kit.write(kit.owner()).await;
        let canceled = topups::cancel(&mut tx, kit.org, topup.id).await.unwrap();
        assert!(canceled.cancel_requested_at.is_some());
        tx.commit(None).await.unwrap();
    }
    while checkouts::advance_next(&kit.payments).await.unwrap() {}
    assert_eq!(
        (kit.topup_read(&one).await.state, kit.topup_read(&other).await.state),
        (TopupState::Expired, TopupState::Paid)
    );
    assert_eq!(kit.has().await, (3000, 0));
    // Not yet at the provider: over at once.
    let young = kit.topup(1000).await.unwrap();
    let mut tx = kit.write(kit.owner()).await;
    assert_eq!(topups::cancel(&mut tx, kit.org, young.id).await.unwrap().state, TopupState::Expired);
}

#[tokio::test]
async fn money_that_arrives_after_the_end_is_credited_all_the_same() {
    let kit = Kit::new().await;
    let topup = kit.open(2500).await;
    let session = json!({ "id": "cs", "status": "expired", "metadata": { "topup_id": topup.id } });
    kit.message_receive(&message("evt_1", "checkout.session.expired", session)).await;
    assert_eq!(kit.topup_read(&topup).await.state, TopupState::Expired);
    kit.message_receive(&completed(&topup, "pi_1", "evt")).await;
    assert_eq!((kit.topup_read(&topup).await.state, kit.has().await), (TopupState::Paid, (2500, 0)));
}

#[tokio::test]
async fn another_amount_or_currency_credits_nothing_and_is_a_finding() {
    let kit = Kit::new().await;
    for (at, (amount, currency)) in [(2400, "usd"), (2500, "eur")].into_iter().enumerate() {
        let topup = kit.open(2500).await;
        let session = json!({
            "id": "cs", "payment_status": "paid", "payment_intent": format!("pi_{at}"), "amount_total": amount, "currency": currency,
            "metadata": { "topup_id": topup.id },
        });
        kit.message_receive(&message(&format!("evt_{at}"), "checkout.session.completed", session)).await;
        assert_eq!(kit.topup_read(&topup).await.state, TopupState::Failed);
    }
    assert_eq!(kit.has().await, (0, 0));
    assert_eq!(kit.states("payment_messages").await, ["failed", "failed"]);
    let open: i64 = kit
        .one("SELECT count(*) FROM billing_findings WHERE kind = 'provider_amount' AND resolved_at IS NULL")
        .await;
    assert_eq!(open, 2);
}

#[tokio::test]
async fn a_second_payment_for_one_top_up_is_not_taken_for_the_first() {
    let kit = Kit::new().await;
    let topup = kit.open(2500).await;
    kit.message_receive(&completed(&topup, "pi_1", "evt_a")).await;
    kit.message_receive(&completed(&topup, "pi_2", "evt_b")).await;
    assert_eq!((kit.topup_read(&topup).await.state, kit.has().await), (TopupState::Paid, (2500, 0)));
    assert_eq!(kit.states("payment_messages").await, ["failed", "processed"]);
    let subject: String = kit
        .one("SELECT subject FROM billing_findings WHERE kind = 'provider_extra' AND resolved_at IS NULL")
        .await;
    assert_eq!(subject, "payment pi_2");
}

#[tokio::test]
async fn a_top_up_in_another_currency_than_the_ledger_is_not_credited() {
    let kit = Kit::new().await;
    let topup = kit.open(2500).await;
    // The ledger was begun in another currency since.
    let _: i64 = kit.one(&format!("SELECT (ledger_lock('{}', 'JPY')).seq", kit.org.uuid())).await;
    kit.message_receive(&completed(&topup, "pi_1", "evt")).await;
    assert_eq!((kit.topup_read(&topup).await.state, kit.has().await), (TopupState::Failed, (0, 0)));
    assert_eq!(kit.states("payment_messages").await, ["failed"]);
}

#[tokio::test]
async fn messages_that_mean_nothing_are_kept_and_ignored_and_failed_ones_can_be_tried_again() {
    let kit = Kit::new().await;
    kit.message_receive(&message("evt_1", "customer.created", json!({ "id": "cus" }))).await;
    kit.message_receive(&message(
        "evt_2",
        "checkout.session.completed",
        json!({ "id": "cs_of_somebody_else" }),
    ))
    .await;
    kit.message_receive(&message("evt_3", "checkout.session.completed", json!({ "id": 7 }))).await;
    kit.message_receive(br#"{"id": "evt_4", "type": "charge.dispute.created"}"#).await;
    let mut states = kit.states("payment_messages").await;
    states.sort();
    assert_eq!(states, ["failed", "failed", "ignored", "ignored"]);
    let mut tx = kit.write(kit.admin()).await;
    let ids: Vec<uuid::Uuid> = kit.one("SELECT array_agg(id ORDER BY event_id) FROM payment_messages").await;
    let reason = Reason::parse("the cause is gone").unwrap();
    assert_eq!(
        messages::requeue(&mut tx, ids[2].into(), &reason).await.unwrap().state,
        MessageState::Received
    );
    let refused = problem(messages::requeue(&mut tx, ids[0].into(), &reason).await.unwrap_err());
    assert_eq!(refused.code.status(), 409);
    tx.commit(None).await.unwrap();
    kit.drain().await;
    let now: String = kit.one("SELECT state FROM payment_messages WHERE event_id = 'evt_3'").await;
    assert_eq!(now, "failed");
}
