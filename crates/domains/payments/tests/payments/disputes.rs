//! Card holders who take money back, in whatever order we hear of it.

use chrono::TimeDelta;

use crate::kit::{Kit, completed, dispute, message};

async fn state(kit: &Kit) -> (Vec<String>, (i64, i64)) {
    (kit.states("disputes").await, kit.has().await)
}

#[tokio::test]
async fn disputed_money_is_frozen_then_free_again_or_gone() {
    let kit = Kit::new().await;
    kit.paid(5000, "pi_1").await;
    kit.paid(3000, "pi_2").await;
    kit.message_receive(&message(
        "evt_1",
        "charge.dispute.created",
        dispute("dp_1", "pi_1", 5000, "needs_response"),
    ))
    .await;
    kit.message_receive(&message(
        "evt_2",
        "charge.dispute.created",
        dispute("dp_2", "pi_2", 1000, "needs_response"),
    ))
    .await;
    assert_eq!(kit.has().await, (2000, 6000));
    kit.message_receive(&message("evt_3", "charge.dispute.closed", dispute("dp_1", "pi_1", 5000, "won")))
        .await;
    assert_eq!(kit.has().await, (7000, 1000));
    kit.message_receive(&message("evt_4", "charge.dispute.closed", dispute("dp_2", "pi_2", 1000, "lost")))
        .await;
    assert_eq!(state(&kit).await, (vec!["lost".to_owned(), "won".to_owned()], (7000, 0)));
    let told: i64 =
        kit.one("SELECT count(*) FROM outbox_events WHERE event_type = 'payments.disputed'").await;
    assert_eq!(told, 4);
}

#[tokio::test]
async fn every_order_of_paid_disputed_and_lost_ends_the_same() {
    let orders: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let kit = Kit::new().await;
        let topup = kit.open(4000).await;
        let messages = [
            completed(&topup, "pi_1", "evt"),
            message("evt_1", "charge.dispute.created", dispute("dp_1", "pi_1", 4000, "needs_response")),
            message("evt_2", "charge.dispute.closed", dispute("dp_1", "pi_1", 4000, "lost")),
        ];
        for at in order {
            kit.message_receive(&messages[at]).await;
            kit.message_receive(&messages[at]).await;
        }
        assert_eq!(state(&kit).await, (vec!["lost".to_owned()], (0, 0)), "{order:?}");
        assert_eq!(kit.states("payment_messages").await, ["processed"; 3], "{order:?}");
    }
}

#[tokio::test]
async fn a_dispute_about_money_that_was_used_leaves_a_debt() {
    let kit = Kit::new().await;
    let payment = kit.paid(5000, "pi_1").await;
    let mut tx = kit.write(kit.admin()).await;
    let reason = kernel::text::Reason::parse("as was asked for").unwrap();
    payments::service::refunds::create(&kit.payments, &mut tx, payment, 4000, &reason).await.unwrap();
    tx.commit(None).await.unwrap();
    kit.message_receive(&message(
        "evt_1",
        "charge.dispute.created",
        dispute("dp_1", "pi_1", 5000, "needs_response"),
    ))
    .await;
    assert_eq!(kit.has().await, (-4000, 5000));
}

#[tokio::test]
async fn a_message_whose_payment_never_comes_fails_in_the_end_and_is_found_when_it_does() {
    let kit = Kit::new().await;
    let topup = kit.open(4000).await;
    kit.message_receive(&message(
        "evt_1",
        "charge.dispute.created",
        dispute("dp_1", "pi_1", 4000, "needs_response"),
    ))
    .await;
    for _ in 0..200 {
        kit.pass(TimeDelta::minutes(11));
        kit.drain().await;
    }
    assert_eq!(kit.states("payment_messages").await, ["failed"]);
    kit.message_receive(&completed(&topup, "pi_1", "evt")).await;
    assert_eq!(kit.has().await, (0, 4000));
    assert_eq!(kit.states("payment_messages").await, ["processed", "processed"]);
}
