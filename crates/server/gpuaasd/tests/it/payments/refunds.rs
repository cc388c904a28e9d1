//! Money that goes back.

use serde_json::{Value, json};
use testkit::{Answer, eventually};

use super::Shop;

const REFUNDS: &str = "/api/v1/platform/billing/refunds";

async fn ask(shop: &Shop, key: &str, payment: &Value, amount: i64) -> Answer {
    let body =
        json!({ "payment_id": payment["id"], "amount_minor": amount, "reason": "the node was broken" });
    shop.world.admin.post_once(key, REFUNDS, body).await
}

async fn reaches(shop: &Shop, refund: &Value, state: &str) -> Value {
    let path = format!("{REFUNDS}/{}", refund["id"].as_str().expect("an id"));
    eventually(&format!("the refund is {state}"), || async {
        let now = shop.world.admin.get(&path).await.expect(200);
        (now["state"] == state).then_some(now)
    })
    .await
}

/// What the provider has sent back of a payment.
async fn sent_back(shop: &Shop, payment: &Value) -> Value {
    let path = format!("/v1/charges?payment_intent={}", payment["intent"].as_str().expect("an intent"));
    shop.pay.get(&path).await["data"][0]["amount_refunded"].clone()
}

#[tokio::test]
async fn a_refund_goes_to_the_card_once_and_never_more_than_was_paid() {
    let shop = Shop::open(&["--duplicate", "2", "--reorder"]).await;
    let payment = shop.paid(5000).await;
    let refund = ask(&shop, "first", &payment, 2000).await.expect(202);
    assert_eq!(refund["destination"], "card");
    // The same request again is the same refund.
    assert_eq!(ask(&shop, "first", &payment, 2000).await.expect(202)["id"], refund["id"]);
    reaches(&shop, &refund, "succeeded").await;
    shop.has(3000, 0).await;
    assert_eq!(ask(&shop, "second", &payment, 3001).await.status, 422);
    let rest = ask(&shop, "third", &payment, 3000).await.expect(202);
    reaches(&shop, &rest, "succeeded").await;
    assert_eq!(ask(&shop, "fourth", &payment, 1).await.status, 422);
    shop.all_processed().await;
    shop.has(0, 0).await;
    assert_eq!(sent_back(&shop, &payment).await, 5000);
    shop.books_are_right(1).await;
}

#[tokio::test]
async fn a_refund_that_the_bank_refuses_is_back_in_the_balance() {
    let shop = Shop::open(&["--reorder"]).await;
    let payment = shop.paid(5000).await;
    shop.pay.post("/sim/refunds/next", &[("status", "failed")]).await;
    let refund = ask(&shop, "first", &payment, 2000).await.expect(202);
    reaches(&shop, &refund, "failed").await;
    shop.has(5000, 0).await;
    // And one that fails after it had succeeded.
    let refund = ask(&shop, "second", &payment, 1000).await.expect(202);
    let refund = reaches(&shop, &refund, "succeeded").await;
    shop.has(4000, 0).await;
    let fail = format!("/sim/refunds/{}/fail", refund["provider_refund"].as_str().expect("its id there"));
    shop.pay.post(&fail, &[]).await;
    reaches(&shop, &refund, "failed").await;
    shop.has(5000, 0).await;
    shop.all_processed().await;
    shop.has(5000, 0).await;
    shop.books_are_right(1).await;
}

#[tokio::test]
async fn a_refund_that_is_pending_at_the_provider_ends_when_it_says_so() {
    let shop = Shop::open(&[]).await;
    let payment = shop.paid(5000).await;
    shop.pay.post("/sim/refunds/next", &[("status", "pending")]).await;
    let refund = ask(&shop, "first", &payment, 2000).await.expect(202);
    shop.has(3000, 0).await;
    let theirs = eventually("the provider knows of it", || async {
        let listed = shop.pay.get("/v1/refunds").await;
        listed["data"][0]["id"].as_str().map(str::to_owned)
    })
    .await;
    shop.pay.post(&format!("/sim/refunds/{theirs}/succeed"), &[]).await;
    reaches(&shop, &refund, "succeeded").await;
    shop.all_processed().await;
    shop.has(3000, 0).await;
}

#[tokio::test]
async fn a_refund_that_somebody_makes_at_the_provider_is_in_the_books_once() {
    let shop = Shop::open(&["--duplicate", "2", "--reorder"]).await;
    let payment = shop.paid(5000).await;
    let intent = payment["intent"].as_str().unwrap();
    shop.pay.post("/v1/refunds", &[("payment_intent", intent), ("amount", "1200")]).await;
    shop.has(3800, 0).await;
    shop.all_processed().await;
    shop.has(3800, 0).await;
    let refunds = shop.ada.api.get(&shop.path("refunds")).await.expect(200);
    assert_eq!(refunds["items"].as_array().map(Vec::len), Some(1), "{refunds}");
    assert_eq!(refunds["items"][0]["source"], "provider");
}

#[tokio::test]
async fn after_the_window_a_refund_is_refused_and_the_balance_stays_what_it_is() {
    let shop = Shop::open(&[]).await;
    let payment = shop.paid(5000).await;
    shop.world
        .admin
        .put("/api/v1/platform/policies/allocation.refund_window_days", json!({ "value": 0 }))
        .await
        .expect(200);
    let refused = ask(&shop, "first", &payment, 2000).await.expect(422);
    assert_eq!(refused["error"]["details"]["reason"], "refund_window_over", "{refused}");
    shop.has(5000, 0).await;
    shop.all_processed().await;
    assert_eq!(sent_back(&shop, &payment).await, 0);
}

#[tokio::test]
async fn a_refund_that_is_on_its_way_is_not_settled_by_hand() {
    let shop = Shop::open(&[]).await;
    let payment = shop.paid(5000).await;
    shop.pay.post("/sim/refunds/next", &[("status", "pending")]).await;
    let refund = ask(&shop, "first", &payment, 2000).await.expect(202);
    let path = format!("{REFUNDS}/{}/settle", refund["id"].as_str().expect("an id"));
    let body = json!({ "outcome": "not_sent", "reason": "nothing is there" });
    let refused = shop.world.admin.post_once("settle", &path, body).await.expect(409);
    assert_eq!(refused["error"]["code"], "invalid_transition", "{refused}");
    let body = json!({ "outcome": "sent", "reason": "no id was given" });
    shop.world.admin.post_once("settle-2", &path, body).await.expect(400);
    shop.has(3000, 0).await;
}
