//! The provider's lists against the books.

use serde_json::{Value, json};
use testkit::eventually;

use super::Shop;

const DAYS: &str = "/api/v1/platform/billing/reconciliations";

/// Compares today, and gives the outcome.
async fn compare(shop: &Shop) -> Value {
    let today = kernel::Ambient::system().now().date_naive().to_string();
    let asked = shop.world.admin.post(DAYS, json!({ "day": today })).await.expect(202);
    eventually("the day is compared", || async {
        let days = shop.world.admin.get(DAYS).await.expect(200);
        let found = days["items"].as_array()?.iter().find(|day| day["day"] == today.as_str())?.clone();
        (found["state"] != "requested" && found["requested_at"] == asked["requested_at"]).then_some(found)
    })
    .await
}

fn counts(day: &Value) -> (&str, i64, i64, i64) {
    let count = |key: &str| day[key].as_i64().expect("a count");
    (day["state"].as_str().expect("a state"), count("missing"), count("extra"), count("different"))
}

async fn open_findings(shop: &Shop, kind: &str, intent: &str) -> i64 {
    let sql = format!(
        "SELECT count(*) FROM billing_findings WHERE kind = '{kind}' AND subject LIKE '%{intent}%' AND resolved_at IS NULL"
    );
    shop.world.count(&sql).await
}

#[tokio::test]
async fn a_payment_that_is_missing_or_extra_at_the_provider_is_found_and_named() {
    let shop = Shop::open(&[]).await;
    // A declined card is no payment.
    let topup = shop.topup(1000).await;
    shop.pay.press(&topup.url, "decline").await;
    let first = shop.paid(2000).await;
    shop.paid(3000).await;
    assert_eq!(counts(&compare(&shop).await), ("clean", 0, 0, 0));

    let intent = first["intent"].as_str().unwrap();
    shop.pay.post(&format!("/sim/payments/{intent}/hide"), &[]).await;
    assert_eq!(counts(&compare(&shop).await), ("different", 1, 0, 0));
    assert_eq!(open_findings(&shop, "provider_missing", intent).await, 1);

    let made_up = shop.pay.post("/sim/payments/invent", &[("amount", "7700")]).await;
    let made_up = made_up["id"].as_str().unwrap();
    assert_eq!(counts(&compare(&shop).await), ("different", 1, 1, 0));
    assert_eq!(open_findings(&shop, "provider_extra", made_up).await, 1);
    // Found again, it is the same finding; and nothing is mended in silence.
    assert_eq!(counts(&compare(&shop).await), ("different", 1, 1, 0));
    assert_eq!(open_findings(&shop, "provider_extra", made_up).await, 1);
    shop.has(5000, 0).await;

    shop.pay.post(&format!("/sim/payments/{intent}/show"), &[]).await;
    assert_eq!(counts(&compare(&shop).await), ("different", 0, 1, 0));
    assert_eq!(open_findings(&shop, "provider_missing", intent).await, 0);
}
