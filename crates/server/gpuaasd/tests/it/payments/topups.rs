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

/// The page that somebody who is not signed in sees at an address of the server.
async fn page_text(shop: &Shop, address: &str) -> (u16, String) {
    let path = address.strip_prefix(shop.world.server.base.as_str()).unwrap_or(address);
    let answer = shop.world.server.api().get(path).await;
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8", "{path}: {}", answer.text);
    (answer.status, answer.text)
}

#[tokio::test]
async fn a_person_who_paid_comes_back_to_a_page_that_says_what_became_of_it() {
    let shop = Shop::open(&[]).await;
    let topup = shop.topup(2500).await;
    let address = format!("/billing/topups/{}?result=paid", topup.id);
    // Whoever claims to have paid is told what our records say.
    let (status, waiting) = page_text(&shop, &address).await;
    assert!(status == 200 && waiting.contains("The payment is being confirmed"), "{waiting}");
    assert!(waiting.contains("http-equiv=\"refresh\"") && waiting.contains("refreshes=1"), "{waiting}");
    let (_, tired) = page_text(&shop, &format!("{address}&refreshes=1000")).await;
    assert!(tired.contains("still not confirmed") && !tired.contains("http-equiv=\"refresh\""), "{tired}");

    let back = shop.pay.press(&topup.url, "pay").await;
    shop.payment_of(&topup).await;
    let (status, paid) = page_text(&shop, back.url.as_str()).await;
    assert!(status == 200 && paid.contains("Payment received") && paid.contains("25.00 USD"), "{paid}");
    assert!(!paid.contains("http-equiv"), "{paid}");
    // A canceled checkout cannot be claimed either.
    let (_, still) = page_text(&shop, &format!("/billing/topups/{}?result=canceled", topup.id)).await;
    assert!(still.contains("Payment received"), "{still}");
    for secret in [shop.ada.org_id.as_str(), "ada@", topup.url.as_str(), topup.session()] {
        assert!(!paid.contains(secret) && !waiting.contains(secret), "{secret}: {paid}");
    }
}

#[tokio::test]
async fn a_person_who_did_not_pay_is_told_that_nothing_was_charged() {
    let shop = Shop::open(&[]).await;
    let topup = shop.topup(1500).await;
    let back = shop.pay.press(&topup.url, "cancel").await;
    let (status, left) = page_text(&shop, back.url.as_str()).await;
    assert!(
        status == 200 && left.contains("Nothing was charged") && left.contains("gpuaas billing topup 15.00"),
        "{left}"
    );
    assert!(!left.contains(&topup.url) && !left.contains("http-equiv=\"refresh\""), "{left}");
    shop.pay.post(&format!("/v1/checkout/sessions/{}/expire", topup.session()), &[]).await;
    shop.all_processed().await;
    let (_, ended) = page_text(&shop, &format!("/billing/topups/{}?result=paid", topup.id)).await;
    assert!(ended.contains("has ended without a payment"), "{ended}");
    let (status, unknown) = page_text(&shop, "/billing/topups/topup_0193b3a0000070008000000000000001").await;
    assert!(status == 404 && unknown.contains("There is no such top-up"), "{unknown}");
}
