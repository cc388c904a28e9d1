//! Whom the control plane believes, with Stripe's own SDK as the signer.

use serde_json::{Value, json};
use testkit::{PaySim, stripe_sdk};

use super::{Shop, Topup};

const SECRET: &str = "whsec_of_the_tests"; // secret-scan: allow

/// The provider's word that a checkout was paid.
async fn paid_event(shop: &Shop, topup: &Topup, intent: &str) -> Vec<u8> {
    let mut session = shop.pay.get(&format!("/v1/checkout/sessions/{}", topup.session())).await;
    session["status"] = "complete".into();
    session["payment_status"] = "paid".into();
    session["payment_intent"] = intent.into();
    let event = json!({
        "id": format!("evt_{intent}"), "object": "event", "type": "checkout.session.completed", "created": 1,
        "livemode": false, "data": { "object": session },
    });
    serde_json::to_vec_pretty(&event).unwrap()
}

async fn stored_messages(shop: &Shop) -> i64 {
    shop.world.count("SELECT count(*) FROM payment_messages WHERE event_id LIKE 'evt\\_pi\\_made%'").await
}

#[tokio::test]
async fn messages_signed_by_stripes_own_sdk_are_believed_and_altered_bytes_are_not() {
    let shop = Shop::open(&[]).await;
    let topup = shop.topup(5000).await;
    let body = paid_event(&shop, &topup, "pi_made").await;
    let signature = stripe_sdk(&["sign", SECRET], &body).await.unwrap();

    // One bit of one byte, wherever it is.
    for at in [0, body.len() / 3, body.len() / 2, body.len() - 1] {
        let mut altered = body.clone();
        altered[at] ^= 1;
        assert_eq!(shop.webhook_post(&signature, &altered).await.status, 400, "byte {at}");
    }
    let longer = [body.as_slice(), b" "].concat();
    assert_eq!(shop.webhook_post(&signature, &longer).await.status, 400);
    let other = stripe_sdk(&["sign", "whsec_other"], &body).await.unwrap();
    let time = signature.split(',').next().unwrap();
    let guesses = [other.as_str(), "", "t=1", "nonsense", "v1=00", time, &signature.replace("v1=", "v0=")];
    for wrong in guesses {
        assert_eq!(shop.webhook_post(wrong, &body).await.status, 400, "{wrong:?}");
    }
    // Signed well, too long ago.
    let old = stripe_sdk(&["sign", SECRET, "1000000000"], &body).await.unwrap();
    assert_eq!(shop.webhook_post(&old, &body).await.status, 400);
    assert_eq!(stored_messages(&shop).await, 0, "what is not believed leaves nothing");
    assert_eq!(shop.balance().await["prepaid_minor"], 0);

    for _ in 0..3 {
        let answer = shop.webhook_post(&signature, &body).await;
        assert!((200..300).contains(&answer.status), "{}", answer.text);
    }
    shop.has(5000, 0).await;
    assert_eq!(stored_messages(&shop).await, 1);
    shop.all_processed().await;
    shop.books_are_right(1).await;
}

#[tokio::test]
async fn one_good_signature_among_several_is_enough() {
    let shop = Shop::open(&[]).await;
    let topup = shop.topup(2000).await;
    let body = paid_event(&shop, &topup, "pi_made").await;
    let signature = stripe_sdk(&["sign", SECRET], &body).await.unwrap();
    let (time, digest) = signature.split_once(",v1=").unwrap();
    let zeros = "0".repeat(64);
    assert_eq!(shop.webhook_post(&format!("{time},v1={zeros}"), &body).await.status, 400);
    let answer = shop.webhook_post(&format!("{time},v1={zeros},v0={zeros},v1={digest}"), &body).await;
    assert!(answer.status < 300, "{}", answer.text);
    shop.has(2000, 0).await;
}

#[tokio::test]
async fn while_a_secret_is_replaced_messages_signed_with_either_are_believed() {
    let pay = PaySim::prepare();
    pay.set_secrets(&[SECRET, "whsec_next"]);
    let shop = Shop::open_with(pay, &[]).await;
    for (secrets, total) in
        [(vec![SECRET], 1000), (vec![SECRET, "whsec_next"], 2000), (vec!["whsec_next"], 3000)]
    {
        shop.pay.set_secrets(&secrets);
        shop.paid(1000).await;
        shop.has(total, 0).await;
    }
    shop.all_processed().await;
    shop.books_are_right(3).await;
}

#[tokio::test]
async fn an_amount_that_is_not_the_one_asked_for_is_not_credited_but_shown() {
    let shop = Shop::open(&[]).await;
    let topup = shop.topup(5000).await;
    let body = paid_event(&shop, &topup, "pi_made").await;
    let mut event: Value = serde_json::from_slice(&body).unwrap();
    event["data"]["object"]["amount_total"] = 5_000_000.into();
    let body = serde_json::to_vec(&event).unwrap();
    let signature = stripe_sdk(&["sign", SECRET], &body).await.unwrap();
    assert!(shop.webhook_post(&signature, &body).await.status < 300);
    shop.all_processed().await;
    assert_eq!(shop.balance().await["prepaid_minor"], 0);
    let findings =
        shop.world.count("SELECT count(*) FROM billing_findings WHERE subject LIKE '%pi_made%'").await;
    assert_eq!(findings, 1);
}
