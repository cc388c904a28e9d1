//! The simulated provider as its clients see it, with Stripe's own SDK as the judge.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test, a failure is a failed test"
)]

use testkit::{PaySim, WebhookSink, eventually, stripe_sdk as sdk};

async fn invented_customer(pay: &PaySim) {
    pay.post("/v1/customers", &[("name", "Ada"), ("metadata[note]", "naïve ☂")]).await;
}

#[tokio::test]
async fn stripes_own_sdk_finds_the_simulated_provider_to_be_stripe() {
    let mut pay = PaySim::prepare();
    let sink = WebhookSink::start().await;
    pay.start(&sink.url, &[]).await;
    let key = std::fs::read_to_string(pay.file("api-key")).unwrap();
    sdk(&["drive", &pay.base, key.trim()], b"").await.expect("the SDK is content");
}

#[tokio::test]
async fn messages_of_the_simulated_provider_verify_with_stripes_own_sdk_under_each_secret() {
    let mut pay = PaySim::prepare();
    let sink = WebhookSink::start().await;
    pay.set_secrets(&["whsec_old", "whsec_new"]);
    pay.start(&sink.url, &[]).await;
    invented_customer(&pay).await;
    pay.all_delivered().await;
    let message = sink.taken().pop().expect("a message");
    let signature = message.header("stripe-signature");
    for secret in ["whsec_old", "whsec_new"] {
        let told = sdk(&["verify", secret, signature], &message.body).await;
        assert_eq!(told.as_deref(), Ok("customer.created"));
    }
    let told = sdk(&["verify", "whsec_other", signature], &message.body).await;
    assert_eq!(told, Err("refused".to_owned()));
    let altered = String::from_utf8(message.body.clone()).unwrap().replacen("Ada", "Eve", 1);
    let told = sdk(&["verify", "whsec_old", signature], altered.as_bytes()).await;
    assert_eq!(told, Err("refused".to_owned()));
}

#[tokio::test]
async fn a_killed_provider_forgets_neither_what_it_answered_nor_a_message_that_was_not_taken() {
    let mut pay = PaySim::prepare();
    let sink = WebhookSink::start().await;
    // Nobody listens there yet.
    pay.start("http://127.0.0.1:9/", &[]).await;
    invented_customer(&pay).await;
    let id = pay.get("/v1/customers").await["data"][0]["id"].as_str().unwrap().to_owned();
    pay.kill();
    pay.start(&sink.url, &[]).await;
    assert_eq!(pay.get(&format!("/v1/customers/{id}")).await["name"], "Ada");
    pay.all_delivered().await;
    assert_eq!(sink.taken().len(), 1);
}

#[tokio::test]
async fn chaos_means_more_messages_and_lost_ones_but_none_missing() {
    let mut pay = PaySim::prepare();
    let sink = WebhookSink::start().await;
    pay.start(&sink.url, &["--duplicate", "4", "--drop-first", "--reorder", "--delay-ms", "20"]).await;
    for _ in 0..4 {
        invented_customer(&pay).await;
    }
    pay.all_delivered().await;
    let mut counts = std::collections::BTreeMap::new();
    for message in sink.taken() {
        let event: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
        *counts.entry(event["id"].as_str().unwrap().to_owned()).or_insert(0) += 1;
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [5; 4]);
    // Of each delivery the first attempt was lost.
    eventually("the log is written", || async {
        (pay.log().matches("lost on the way").count() == 20).then_some(())
    })
    .await;
}

#[tokio::test]
async fn strangers_can_neither_read_nor_make_up_payments() {
    let mut pay = PaySim::prepare();
    pay.start("http://127.0.0.1:9/", &[]).await;
    let stranger = testkit::Api::new(&pay.base, Some("sk_test_guess".to_owned()));
    for path in ["/v1/payment_intents", "/v1/customers", "/sim/deliveries"] {
        assert_eq!(stranger.get(path).await.status, 401, "{path}");
    }
    let invent = stranger.request(reqwest::Method::POST, "/sim/payments/invent").form(&[("amount", "100")]);
    assert_eq!(stranger.send(invent).await.status, 401);
}
