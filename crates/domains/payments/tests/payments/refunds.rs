//! Money that goes back: never more than was paid, never twice.

use chrono::TimeDelta;
use kernel::{
    Failure,
    ids::{PaymentId, UserId},
    text::Reason,
};
use payments::{
    model::refund::{Refund, RefundDestination, RefundState, Settlement},
    provider::ProviderError,
    service::{refund_settlement::refund_settle, refunds, sending},
};
use serde_json::{Value, json};

use crate::kit::{Kit, dispute, message};

pub async fn ask(kit: &Kit, payment: PaymentId, amount: i64) -> Result<Refund, Failure> {
    let mut tx = kit.write(kit.admin()).await;
    let reason = Reason::parse("the machine was broken").unwrap();
    let refund = refunds::create(&kit.payments, &mut tx, payment, amount, &reason).await?;
    tx.commit(None).await?;
    Ok(refund)
}

pub fn status(failure: Failure) -> u16 {
    match failure {
        Failure::Problem(problem) => problem.code.status(),
        other => panic!("{other:?}"),
    }
}

pub async fn send(kit: &Kit) {
    while sending::send_next(&kit.payments).await.unwrap() {}
}

fn refund_object(id: &str, intent: &str, amount: i64, status: &str) -> Value {
    json!({ "id": id, "amount": amount, "currency": "usd", "status": status, "payment_intent": intent })
}

#[tokio::test]
async fn a_refund_leaves_the_balance_at_once_and_is_sent_to_the_card() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    let refund = ask(&kit, payment, 2000).await.unwrap();
    assert_eq!((refund.destination, refund.state), (RefundDestination::Card, RefundState::Pending));
    assert_eq!(kit.has().await, (3000, 0));
    send(&kit).await;
    assert_eq!(kit.states("refunds").await, ["succeeded"]);
    assert_eq!(kit.provider.desk().refunds, [("pi_1".to_owned(), 2000, refund.id)]);
    for too_much in [3001, 0, -1, i64::MAX] {
        assert_eq!(status(ask(&kit, payment, too_much).await.unwrap_err()), 422, "{too_much}");
    }
    ask(&kit, payment, 3000).await.unwrap();
    assert_eq!(status(ask(&kit, payment, 1).await.unwrap_err()), 422);
    assert_eq!(kit.has().await, (0, 0));
}

#[tokio::test]
async fn refunds_asked_for_at_once_never_exceed_what_was_paid() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    let asked = (0..12).map(|_| ask(&kit, payment, 700));
    let answers = futures_util::future::join_all(asked).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 7);
    assert_eq!(kit.has().await, (100, 0));
    let (one, other) = tokio::join!(send(&kit), send(&kit));
    let ((), ()) = (one, other);
    assert_eq!(kit.provider.desk().refunds.iter().map(|(_, amount, _)| amount).sum::<i64>(), 4900);
}

#[tokio::test]
async fn what_was_used_or_is_disputed_cannot_go_back() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    kit.message_receive(&message(
        "evt_1",
        "charge.dispute.created",
        dispute("dp_1", "pi_1", 1500, "needs_response"),
    ))
    .await;
    assert_eq!(status(ask(&kit, payment, 3501).await.unwrap_err()), 422);
    // Of another payment, which is not disputed, the balance covers a part only.
    let other = kit.paid(2000, "pi_2").await;
    kit.message_receive(&message(
        "evt_2",
        "charge.dispute.created",
        dispute("dp_2", "pi_1", 3500, "needs_response"),
    ))
    .await;
    assert_eq!(kit.has().await, (2000, 5000));
    assert_eq!(status(ask(&kit, payment, 1).await.unwrap_err()), 422);
    kit.message_receive(&message(
        "evt_3",
        "refund.created",
        refund_object("re_there", "pi_2", 500, "succeeded"),
    ))
    .await;
    assert_eq!(status(ask(&kit, other, 1501).await.unwrap_err()), 422);
    ask(&kit, other, 1500).await.unwrap();
    assert_eq!(kit.has().await, (0, 5000));
}

#[tokio::test]
async fn a_lost_answer_sends_nothing_twice_and_a_refusal_gives_the_money_back() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    kit.provider.desk().faults.push(ProviderError::Unavailable("lost".to_owned()));
    ask(&kit, payment, 2000).await.unwrap();
    send(&kit).await;
    assert_eq!(kit.states("refunds").await, ["pending"]);
    kit.pass(TimeDelta::seconds(5));
    send(&kit).await;
    assert_eq!(kit.states("refunds").await, ["succeeded"]);
    assert_eq!(kit.provider.desk().refunds.len(), 1);

    kit.provider.desk().faults.push(ProviderError::Refused("charge_disputed".to_owned()));
    ask(&kit, payment, 1000).await.unwrap();
    assert_eq!(kit.has().await, (2000, 0));
    send(&kit).await;
    assert_eq!(kit.states("refunds").await, ["failed", "succeeded"]);
    assert_eq!(kit.has().await, (3000, 0));
    // What failed can be asked for again.
    ask(&kit, payment, 3000).await.unwrap();
}

#[tokio::test]
async fn a_provider_that_is_away_for_a_day_is_not_asked_again_lest_it_pays_twice() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    kit.provider.desk().faults.extend((0..1000).map(|_| ProviderError::Unavailable("lost".to_owned())));
    ask(&kit, payment, 2000).await.unwrap();
    for _ in 0..40 {
        send(&kit).await;
        kit.pass(TimeDelta::hours(1));
    }
    let calls = kit.provider.desk().calls;
    kit.provider.desk().faults.clear();
    kit.pass(TimeDelta::days(30));
    send(&kit).await;
    assert_eq!(kit.provider.desk().calls, calls);
    assert_eq!((kit.states("refunds").await, kit.has().await), (vec!["pending".to_owned()], (3000, 0)));
}

#[tokio::test]
async fn after_the_window_unused_money_stays_in_the_balance_and_nothing_is_added() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    kit.pass(TimeDelta::days(31));
    let Failure::Problem(refused) = ask(&kit, payment, 2000).await.unwrap_err() else { panic!("a refusal") };
    assert_eq!((refused.code.status(), &refused.details["reason"]), (422, &json!("refund_window_over")));
    assert!(refused.suggestion.unwrap().contains("adjustments create"));
    assert_eq!(kit.has().await, (5000, 0));
    assert_eq!(kit.one::<i64>("SELECT count(*) FROM refunds").await, 0);
    send(&kit).await;
    assert!(kit.provider.desk().refunds.is_empty());
}

#[tokio::test]
async fn a_refund_that_nobody_sent_for_days_is_sent() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    let refund = ask(&kit, payment, 2000).await.unwrap();
    // No worker ran.
    kit.pass(TimeDelta::days(3));
    send(&kit).await;
    assert_eq!(kit.states("refunds").await, ["succeeded"]);
    assert_eq!(kit.provider.desk().refunds, [("pi_1".to_owned(), 2000, refund.id)]);
}

/// A refund that was asked for until the provider may have forgotten the key.
pub async fn unknown(kit: &Kit) -> Refund {
    let payment = kit.paid(5000, "pi_1").await;
    kit.provider.desk().faults.extend((0..1000).map(|_| ProviderError::Unavailable("lost".to_owned())));
    let refund = ask(kit, payment, 2000).await.unwrap();
    assert_eq!(settle(kit, &refund, 1, Settlement::NotSent).await.err().map(status), Some(409), "on its way");
    for _ in 0..40 {
        send(kit).await;
        kit.pass(TimeDelta::hours(1));
    }
    kit.provider.desk().faults.clear();
    assert!(kit.one::<bool>("SELECT unknown_since IS NOT NULL FROM refunds").await);
    assert_eq!(open_findings(kit).await, 1);
    refund
}

pub async fn open_findings(kit: &Kit) -> i64 {
    kit.one("SELECT count(*) FROM billing_findings WHERE kind = 'refund_unknown' AND resolved_at IS NULL")
        .await
}

async fn settle(kit: &Kit, refund: &Refund, by: u128, settlement: Settlement) -> Result<Refund, Failure> {
    let mut tx = kit.write(kit.admin()).await;
    let (by, reason) =
        (UserId::from(uuid::Uuid::from_u128(by)), Reason::parse("seen at the provider").unwrap());
    let done = refund_settle(&kit.payments, &mut tx, by, refund.id, settlement, &reason).await?;
    tx.commit(None).await?;
    Ok(done)
}

#[tokio::test]
async fn an_unknown_refund_that_was_not_sent_goes_back_to_the_balance_by_another_administrator() {
    let kit = Kit::new().await;
    let refund = unknown(&kit).await;
    let own = kit.org.uuid().as_u128();
    let refused = settle(&kit, &refund, own, Settlement::NotSent).await.unwrap_err();
    assert_eq!(status(refused), 403, "who took it out cannot put it back alone");
    assert_eq!(kit.has().await, (3000, 0));
    let done = settle(&kit, &refund, 7, Settlement::NotSent).await.unwrap();
    assert_eq!((done.state, done.unknown_since), (RefundState::Failed, None));
    assert_eq!((kit.has().await, open_findings(&kit).await), ((5000, 0), 0));
    assert_eq!(status(settle(&kit, &refund, 7, Settlement::NotSent).await.unwrap_err()), 409, "once");
    assert_eq!(kit.has().await, (5000, 0));
    let audited = "SELECT count(*) FROM audit_logs WHERE target_kind = 'refund' AND org_id IS NOT NULL";
    assert!(kit.one::<i64>(audited).await >= 3);
}

#[tokio::test]
async fn an_unknown_refund_that_was_sent_keeps_the_providers_id_and_is_asked_for_no_more() {
    let kit = Kit::new().await;
    let refund = unknown(&kit).await;
    let calls = kit.provider.desk().calls;
    let sent = || Settlement::Sent { provider_refund: "re_there".to_owned() };
    let done = settle(&kit, &refund, kit.org.uuid().as_u128(), sent()).await.unwrap();
    assert_eq!((done.state, done.provider_refund.as_deref()), (RefundState::Succeeded, Some("re_there")));
    kit.pass(TimeDelta::days(2));
    send(&kit).await;
    let asked = kit.provider.desk().calls;
    assert_eq!((asked, kit.has().await), (calls, (3000, 0)));
    assert_eq!(open_findings(&kit).await, 0);
}

#[tokio::test]
async fn a_message_of_the_provider_settles_an_unknown_refund_as_well() {
    let kit = Kit::new().await;
    let refund = unknown(&kit).await;
    let mut told = refund_object("re_late", "pi_1", 2000, "succeeded");
    told["metadata"] = json!({ "refund_id": refund.id });
    kit.message_receive(&message("evt_late", "refund.updated", told)).await;
    assert_eq!(kit.states("refunds").await, ["succeeded"]);
    assert_eq!((open_findings(&kit).await, kit.has().await), (0, (3000, 0)));
}

#[tokio::test]
async fn a_refund_that_was_settled_as_not_sent_and_was_sent_is_found() {
    let kit = Kit::new().await;
    let refund = unknown(&kit).await;
    settle(&kit, &refund, 7, Settlement::NotSent).await.unwrap();
    for status in ["pending", "succeeded"] {
        let mut told = refund_object("re_late", "pi_1", 2000, status);
        told["metadata"] = json!({ "refund_id": refund.id });
        kit.message_receive(&message(&format!("evt_{status}"), "refund.updated", told)).await;
        let failed = format!("SELECT state FROM payment_messages WHERE event_id = 'evt_{status}'");
        assert_eq!(kit.one::<String>(&failed).await, "failed", "{status}");
    }
    assert_eq!((kit.states("refunds").await, kit.has().await), (vec!["failed".to_owned()], (5000, 0)));
    kit.provider.desk().listed_refunds.push(("re_late".to_owned(), 2000));
    let (state, _, extra, _) = crate::days::compare(&kit).await;
    assert_eq!((state.as_str(), extra), ("different", 1));
    assert!(crate::days::open(&kit).await.contains(&"provider_extra refund re_late".to_owned()));
}

#[tokio::test]
async fn a_refund_made_at_the_provider_is_booked_once_whatever_comes_first() {
    for (at, order) in [
        ["pending", "succeeded", "failed"],
        ["failed", "pending", "succeeded"],
        ["succeeded", "failed", "pending"],
    ]
    .into_iter()
    .enumerate()
    {
        let kit = Kit::new().await;
        // Before the payment itself is known.
        let topup = kit.open(5000).await;
        for (n, status) in order.iter().enumerate() {
            kit.message_receive(&message(
                &format!("evt_{n}"),
                "refund.updated",
                refund_object("re_1", "pi_1", 1200, status),
            ))
            .await;
        }
        assert_eq!(kit.states("payment_messages").await, ["received", "received", "received"]);
        kit.message_receive(&crate::kit::completed(&topup, "pi_1", "evt")).await;
        kit.drain().await;
        kit.pass(TimeDelta::minutes(20));
        kit.drain().await;
        assert_eq!(
            (kit.has().await, kit.states("refunds").await),
            ((5000, 0), vec!["failed".to_owned()]),
            "order {at}"
        );
        let unfinished: Vec<String> = kit
            .one("SELECT coalesce(array_agg(state || ': ' || state_reason), '{}') FROM payment_messages WHERE state <> 'processed'")
            .await;
        assert_eq!(unfinished, [""; 0]);
    }
}
