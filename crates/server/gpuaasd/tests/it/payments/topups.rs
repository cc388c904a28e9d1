//! From the wish to the balance.

use super::Shop;

#[tokio::test]
async fn a_payment_on_the_checkout_page_is_in_the_balance_and_the_person_is_sent_back() {
    let shop = Shop::open(&[]).await;
    let topup = shop.topup(2500).await;
    let back = shop.pay.press(&topup.url, "pay").await;
    assert!(back.url.as_str().starts_with(&shop.world.server.base), "{}", back.url);
    let payment = shop.payment_of(&topup).await;
    assert_eq!((&payment["amount_minor"], &payment["refunded_minor"]), (&2500.into(), &0.into()));
    assert_eq!(shop.topup_get(&topup.id).await["state"], "paid");
    shop.has(2500, 0).await;
    shop.all_processed().await;
    shop.books_are_right(1).await;
}

#[tokio::test]
async fn a_declined_card_credits_nothing_and_another_card_can_be_tried() {
    let shop = Shop::open(&[]).await;
    let topup = shop.topup(1500).await;
    let page = shop.pay.press(&topup.url, "decline").await;
    assert!(page.url.as_str().ends_with("?declined"), "{}", page.url);
    shop.all_processed().await;
    assert_eq!(shop.topup_get(&topup.id).await["state"], "open");
    shop.books_are_right(0).await;
    shop.pay.press(&topup.url, "pay").await;
    shop.has(1500, 0).await;
}

#[tokio::test]
async fn a_checkout_that_ends_at_the_provider_ends_here_without_a_payment() {
    let shop = Shop::open(&[]).await;
    let topup = shop.topup(1500).await;
    shop.pay.press(&topup.url, "cancel").await;
    assert_eq!(shop.topup_get(&topup.id).await["state"], "open");
    shop.pay.post(&format!("/v1/checkout/sessions/{}/expire", topup.session()), &[]).await;
    shop.all_processed().await;
    assert_eq!(shop.topup_get(&topup.id).await["state"], "expired");
    shop.books_are_right(0).await;
}

#[tokio::test]
async fn messages_that_are_duplicated_lost_late_and_out_of_order_credit_each_payment_once() {
    let chaos = ["--duplicate", "4", "--drop-first", "--reorder", "--delay-ms", "100"];
    let shop = Shop::open(&chaos).await;
    for amount in [1000, 2000, 4000] {
        let topup = shop.topup(amount).await;
        shop.pay.press(&topup.url, "pay").await;
    }
    shop.has(7000, 0).await;
    shop.all_processed().await;
    shop.has(7000, 0).await;
    shop.books_are_right(3).await;
}

#[tokio::test]
async fn amounts_outside_of_the_policy_are_refused_before_the_provider_hears_of_them() {
    let shop = Shop::open(&[]).await;
    for (key, amount) in [("small", 999_i64), ("large", 100_001), ("negative", -5000)] {
        let body = serde_json::json!({ "amount_minor": amount });
        let answer = shop.ada.api.post_once(key, &shop.path("topups"), body).await;
        assert!(matches!(answer.status, 400 | 422), "{amount}: {}", answer.text);
    }
    assert_eq!(shop.pay.get("/v1/checkout/sessions").await["data"], serde_json::json!([]));
}
