//! Card holders who take money back.

use serde_json::Value;

use super::Shop;

async fn dispute(shop: &Shop, payment: &Value, amount: &str) -> String {
    let path = format!("/sim/charges/{}/dispute", payment["intent"].as_str().unwrap());
    let opened = shop.pay.post(&path, &[("amount", amount)]).await;
    opened["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn disputed_money_is_frozen_and_comes_back_when_the_dispute_is_won() {
    let shop = Shop::open(&["--duplicate", "2", "--reorder"]).await;
    let payment = shop.paid(4000).await;
    let id = dispute(&shop, &payment, "1500").await;
    shop.has(2500, 1500).await;
    shop.pay.post(&format!("/sim/disputes/{id}/close"), &[("status", "won")]).await;
    shop.has(4000, 0).await;
    shop.all_processed().await;
    shop.has(4000, 0).await;
    shop.books_are_right(1).await;
}

#[tokio::test]
async fn disputed_money_is_gone_when_the_dispute_is_lost() {
    let shop = Shop::open(&["--duplicate", "2", "--reorder"]).await;
    let payment = shop.paid(4000).await;
    let id = dispute(&shop, &payment, "4000").await;
    shop.has(0, 4000).await;
    shop.pay.post(&format!("/sim/disputes/{id}/close"), &[("status", "lost")]).await;
    shop.has(0, 0).await;
    shop.all_processed().await;
    shop.books_are_right(1).await;
}

#[tokio::test]
async fn a_dispute_that_is_heard_of_before_its_payment_waits_for_it() {
    let shop = Shop::open(&["--delay-ms", "1"]).await;
    // Both happen before anything is told, and may be told in any order.
    let topup = shop.topup(3000).await;
    shop.pay.post(&format!("/sim/checkout/{}/pay", topup.session()), &[]).await;
    let opened = shop.pay.post(&format!("/sim/charges/{}/dispute", topup.session()), &[]).await;
    let close = format!("/sim/disputes/{}/close", opened["id"].as_str().unwrap());
    shop.pay.post(&close, &[("status", "lost")]).await;
    shop.payment_of(&topup).await;
    shop.has(0, 0).await;
    shop.all_processed().await;
    shop.books_are_right(1).await;
}
