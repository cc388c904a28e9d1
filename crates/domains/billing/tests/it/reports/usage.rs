//! Usage as it is grouped, filtered and bounded.

use http::StatusCode;

use super::kit::{Kit, sum};

async fn used() -> Kit {
    let kit = Kit::at("2031-01-31T22:30:00Z").await;
    kit.fund(1_000_000).await;
    kit.launch(0, "small", 100, 1).await.unwrap();
    kit.launch(0, "large", 1000, 8).await.unwrap();
    kit.launch(1, "small", 100, 2).await.unwrap();
    kit.pass(3 * 3600);
    kit.tick().await;
    kit
}

#[tokio::test]
async fn groups_are_by_project_and_product_and_hours_end_at_midnight_of_the_month() {
    let kit = used().await;
    let rows = kit.money("usage?group=project,sku").await.ok();
    let costs: Vec<(String, String, i64)> = rows["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let text = |field: &str| row[field].as_str().unwrap().to_owned();
            (text("project_id"), text("sku"), row["cost_minor"].as_i64().unwrap())
        })
        .collect();
    let project = |n: usize| kit.projects[n].to_string();
    for expected in [
        (project(0), "large".to_owned(), 24_000),
        (project(0), "small".to_owned(), 300),
        (project(1), "small".to_owned(), 600),
    ] {
        assert!(costs.contains(&expected), "{expected:?} in {costs:?}");
    }
    assert_eq!(costs.len(), 3);
    let months = kit.money("usage?every=month").await.ok();
    let of_month = |n: usize| {
        let row = &months["items"][n];
        (row["period_start"].as_str().unwrap().to_owned(), row["cost_minor"].as_i64().unwrap())
    };
    assert_eq!(of_month(0), ("2031-01-01T00:00:00Z".to_owned(), 12_450));
    assert_eq!(of_month(1), ("2031-02-01T00:00:00Z".to_owned(), 12_450));
    let hours = kit.money("usage?every=hour&from=2031-01-31T23:00:00Z&to=2031-02-01T01:00:00Z").await.ok();
    let hours = hours["items"].as_array().unwrap();
    assert_eq!((hours.len(), sum(hours, "cost_minor")), (2, 16_600));
}

#[tokio::test]
async fn filters_hold_and_a_project_sees_only_its_own() {
    let kit = used().await;
    let small = kit.money("usage?sku=small&group=org").await.ok();
    assert_eq!(sum(small["items"].as_array().unwrap(), "cost_minor"), 900);
    let person = kit.money(&format!("usage?person_id={}", kit.viewer)).await.ok();
    assert!(person["items"].as_array().unwrap().is_empty());
    let path = format!("/api/v1/projects/{}/usage", kit.projects[0]);
    let own = kit.get(kit.viewer, &format!("{path}?group=sku")).await.ok();
    assert_eq!(sum(own["items"].as_array().unwrap(), "cost_minor"), 24_300);
    let records = kit.get(kit.viewer, &format!("{path}/records?page_size=1000")).await.ok();
    assert_eq!(sum(records["items"].as_array().unwrap(), "amount_minor"), 24_300);
    assert!(
        records["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["project_id"] == kit.projects[0].to_string())
    );
    let other = kit.get(kit.viewer, &format!("/api/v1/projects/{}/usage", kit.projects[1])).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    let org = kit.get(kit.viewer, &format!("/api/v1/orgs/{}/billing/usage", kit.org)).await;
    assert!(org.status.is_client_error());
    let csv = kit.money(&format!("usage/export?project_id={}", kit.projects[1])).await.table();
    assert_eq!(csv.iter().map(|row| row["amount_minor"].parse::<i64>().unwrap()).sum::<i64>(), 600);
    let listed =
        kit.money(&format!("usage/records?page_size=1000&project_id={}", kit.projects[1])).await.ok();
    let priced = |row: &serde_json::Value| row["unit_price_minor"].as_i64().unwrap().to_string();
    let prices: Vec<String> = listed["items"].as_array().unwrap().iter().map(priced).collect();
    assert_eq!(csv.iter().map(|row| row["unit_price_minor"].clone()).collect::<Vec<_>>(), prices);
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_by_name() {
    let kit = Kit::new().await;
    for (query, field) in [
        ("usage?group=colour", "group"),
        ("usage?group=project,,sku", "group"),
        ("usage?every=second", "every"),
        ("usage?page_size=0", "page_size"),
        ("usage?page_size=1001", "page_size"),
        ("usage?cursor=zz", "cursor"),
        ("usage/records?cursor=k00", "cursor"),
        ("usage/records?cursor=k7c7c", "cursor"),
        ("usage?from=yesterday", "from"),
        ("usage?to=%2B10000-01-01T00:00:00Z", "to"),
        ("statements/2031-13", "month"),
        ("focus/2031-1", "month"),
    ] {
        let refused = kit.money(query).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{query}: {}", refused.text());
        assert_eq!(refused.json()["error"]["details"]["fields"][0]["field"], field, "{query}");
    }
    let backwards = kit.money("usage?from=2031-02-01T00:00:00Z&to=2031-01-01T00:00:00Z").await;
    assert_eq!(backwards.code(), "validation_error");
}
