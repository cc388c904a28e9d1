//! What we tell others is signed as we want it from others.

use serde_json::json;
use testkit::{WebhookSink, eventually, stripe_sdk};

use super::Shop;

#[tokio::test]
async fn a_customers_webhook_hears_of_the_payment_and_stripes_own_sdk_believes_the_signature() {
    let shop = Shop::open(&[]).await;
    let sink = WebhookSink::start().await;
    let body = json!({ "name": "books", "url": sink.url, "event_types": ["payments.balance_credited"] });
    let path = format!("/api/v1/orgs/{}/webhooks", shop.ada.org_id);
    let made = shop.ada.api.post(&path, body).await.expect(201);
    let secret = made["secret"].as_str().expect("a secret");
    let payment = shop.paid(2500).await;
    let message = eventually("the webhook is told", || async { sink.taken().pop() }).await;
    let signature = message.header("gpuaas-signature");
    let told = stripe_sdk(&["verify", secret, signature], &message.body).await;
    assert_eq!(told.as_deref(), Ok("payments.balance_credited"));
    let event: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
    assert_eq!(
        (&event["data"]["payment_id"], &event["data"]["amount_minor"]),
        (&payment["id"], &2500.into())
    );
    let altered = String::from_utf8(message.body.clone()).unwrap().replacen("2500", "9500", 1);
    let told = stripe_sdk(&["verify", secret, signature], altered.as_bytes()).await;
    assert_eq!(told, Err("refused".to_owned()));
}
