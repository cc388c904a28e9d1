//! Statements: months, balances, and what people may see.

use http::StatusCode;
use serde_json::json;

use super::{
    kit::{Kit, sum},
    paper,
};

#[tokio::test]
async fn months_follow_each_other_without_a_gap_and_the_last_is_provisional() {
    let kit = Kit::at("2031-01-31T23:00:00Z").await;
    assert_eq!(kit.money("statements").await.ok()["items"], json!([]));
    assert_eq!(kit.money("statements/2031-01").await.status, StatusCode::NOT_FOUND);
    kit.fund(10_000).await;
    kit.launch(0, "sku", 600, 1).await.unwrap();
    kit.pass(2 * 3600);
    kit.tick().await;
    // March, with nothing in between.
    kit.pass(40 * 24 * 3600);
    let listed = kit.money("statements").await.ok();
    let months: Vec<_> =
        listed["items"].as_array().unwrap().iter().map(|item| item["month"].as_str().unwrap()).collect();
    assert_eq!(months, ["2031-03", "2031-02", "2031-01"]);
    let items = listed["items"].as_array().unwrap();
    assert_eq!(items[0]["provisional"], true);
    assert_eq!((&items[1]["provisional"], &items[2]["opening_minor"]), (&json!(false), &json!(0)));
    for pair in items.windows(2) {
        assert_eq!(pair[0]["opening_minor"], pair[1]["closing_minor"]);
    }
    // Both hours were posted in February, whenever they were used.
    let january = kit.money("statements/2031-01").await.ok();
    let february = kit.money("statements/2031-02").await.ok();
    assert_eq!(
        (january["changes"]["topups_minor"].as_i64(), january["changes"]["usage_minor"].as_i64()),
        (Some(10_000), Some(0))
    );
    assert_eq!(february["changes"]["usage_minor"], -1200);
    assert_eq!(february["closing_minor"], 8800);
    let page = kit.money("statements?page_size=2").await.ok();
    let rest = kit
        .money(&format!("statements?page_size=2&cursor={}", page["next_cursor"].as_str().unwrap()))
        .await
        .ok();
    assert_eq!(rest["items"], json!([items[2]]));
    assert_eq!(kit.money("statements/2031-07").await.status, StatusCode::NOT_FOUND, "it has not begun");
}

#[tokio::test]
async fn every_movement_is_named_and_frozen_money_still_belongs_to_the_organization() {
    use billing::api::{Account, Line, PostingKind};
    let kit = Kit::new().await;
    kit.fund(5000).await;
    kit.adjust(json!({ "kind": "credit", "amount_minor": 70, "reason": "Ünïcode “quotes” <i>" })).await.ok();
    let freeze = vec![Line::new(Account::Prepaid, -1000), Line::new(Account::Disputed, 1000)];
    kit.post(PostingKind::Hold, "disputed", freeze).await;
    let statement = kit.money("statements/2031-05").await.ok();
    assert_eq!(statement["closing"]["disputed_minor"], 1000);
    assert_eq!(statement["closing_minor"], 5070);
    let movements = statement["movements"].as_array().unwrap();
    assert_eq!((movements.len(), sum(movements, "amount_minor")), (2, 5070));
    let lost = vec![Line::new(Account::Disputed, -1000), Line::new(Account::Refunds, 1000)];
    kit.post(PostingKind::Refund, "dispute lost", lost).await;
    let statement = kit.money("statements/2031-05").await.ok();
    assert_eq!(
        (&statement["closing_minor"], &statement["changes"]["refunds_minor"]),
        (&json!(4070), &json!(-1000))
    );
    let page = kit.money("statements/2031-05/html").await.text();
    assert!(page.contains("Ünïcode “quotes” &lt;i&gt;"), "{page}");
    let shown = paper::of_pdf(&kit.money("statements/2031-05/pdf").await.bytes);
    assert!(shown.iter().any(|line| line == "Statement 2031-05"), "{shown:?}");
    assert!(shown.iter().any(|line| line == "40.70"), "{shown:?}");
    let viewer = kit.get(kit.viewer, &format!("/api/v1/orgs/{}/billing/statements", kit.org)).await;
    assert!(viewer.status.is_client_error());
}
