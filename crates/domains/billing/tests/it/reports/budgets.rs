//! Budgets as people set and see them.

use http::{Method, StatusCode};
use serde_json::json;

use super::kit::Kit;

#[tokio::test]
async fn a_budget_is_set_seen_changed_and_removed() {
    let kit = Kit::new().await;
    let path = format!("/api/v1/projects/{}/budget", kit.projects[0]);
    assert_eq!(kit.get(kit.owner, &path).await.status, StatusCode::NOT_FOUND);
    let body = json!({ "amount_minor": 1000, "threshold_percent": 80, "action": "block" });
    let made = kit.call(kit.owner, Method::PUT, &path, Some(body)).await.ok();
    assert_eq!((made["version"].as_i64(), made["spent_minor"].as_i64()), (Some(1), Some(0)));
    assert_eq!(made["currency"], "USD");
    let body = json!({ "amount_minor": 2000, "action": "notify" });
    let changed = kit.call(kit.owner, Method::PUT, &path, Some(body)).await.ok();
    assert_eq!((changed["version"].as_i64(), changed["threshold_percent"].as_i64()), (Some(2), Some(100)));
    assert_eq!(kit.get(kit.viewer, &path).await.ok(), changed);
    let listed = kit.money("budgets").await.ok();
    assert_eq!(listed["items"], json!([changed]));
    let removed = kit.call(kit.owner, Method::DELETE, &path, None).await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT);
    assert_eq!(kit.call(kit.owner, Method::DELETE, &path, None).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_cannot_be_a_budget_is_refused_with_what_to_do() {
    let kit = Kit::new().await;
    let path = format!("/api/v1/projects/{}/budget", kit.projects[0]);
    for (body, field) in [
        (json!({ "amount_minor": 0, "action": "block" }), "amount_minor"),
        (json!({ "amount_minor": 5, "threshold_percent": 101, "action": "block" }), "threshold_percent"),
        (json!({ "amount_minor": 5, "threshold_percent": 0, "action": "block" }), "threshold_percent"),
        (json!({ "amount_minor": 5, "action": "explode" }), "action"),
    ] {
        let refused = kit.call(kit.owner, Method::PUT, &path, Some(body.clone())).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::BAD_REQUEST, "validation_error"),
            "{body}"
        );
        assert_eq!(refused.json()["error"]["details"]["fields"][0]["field"], field, "{body}");
    }
    let body = json!({ "amount_minor": 5, "action": "block" });
    let refused = kit.call(kit.viewer, Method::PUT, &path, Some(body)).await;
    assert_eq!(refused.code(), "insufficient_permissions");
}

#[tokio::test]
async fn spending_is_shown_and_a_blocked_project_launches_again_when_its_budget_is_raised() {
    let kit = Kit::new().await;
    kit.fund(100_000).await;
    kit.policy("billing.launch_hold_seconds", 0).await;
    let path = format!("/api/v1/projects/{}/budget", kit.projects[0]);
    let body = json!({ "amount_minor": 200, "threshold_percent": 50, "action": "block" });
    kit.call(kit.owner, Method::PUT, &path, Some(body)).await.ok();
    kit.launch(0, "sku", 100, 1).await.unwrap();
    kit.pass(3600);
    kit.tick().await;
    let seen = kit.get(kit.owner, &path).await.ok();
    assert_eq!((seen["spent_minor"].as_i64(), seen["spent_percent"].as_i64()), (Some(100), Some(50)));
    assert!(seen["crossed_at"].is_string(), "{seen}");
    let refused = kit.launch(0, "sku", 100, 1).await.unwrap_err();
    assert!(format!("{refused:?}").contains("budget"), "{refused:?}");
    assert!(kit.launch(1, "sku", 100, 1).await.is_ok(), "another project is free");
    kit.pass(1);
    let body = json!({ "amount_minor": 1000, "threshold_percent": 50, "action": "block" });
    kit.call(kit.owner, Method::PUT, &path, Some(body)).await.ok();
    kit.pass(60);
    kit.tick().await;
    assert!(kit.launch(0, "sku", 100, 1).await.is_ok());
}
