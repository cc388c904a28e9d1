//! Adjustments: small ones at once, large ones with a second administrator, each posted once.

use http::{Method, StatusCode};
use serde_json::json;

use crate::kit::Kit;

const PATH: &str = "/api/v1/platform/billing/adjustments";

async fn balance(kit: &Kit) -> i64 {
    kit.one("SELECT coalesce((SELECT prepaid_after + promo_after FROM ledger_postings ORDER BY seq DESC LIMIT 1), 0)").await
}

#[tokio::test]
async fn a_small_credit_is_posted_at_once_and_is_in_the_organizations_trail() {
    let kit = Kit::new().await;
    let made = kit.adjust(json!({ "kind": "credit", "amount_minor": 500 })).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let made = made.json();
    assert_eq!((made["state"].as_str(), made["seq"].as_i64()), (Some("posted"), Some(1)));
    assert_eq!(made["decided_by"], made["proposed_by"]);
    assert_eq!(balance(&kit).await, 500);
    let audited: i64 = kit
        .one(&format!(
            "SELECT count(*) FROM audit_logs WHERE org_id = '{}' AND action = 'adjustment.create'",
            kit.org.uuid()
        ))
        .await;
    assert_eq!(audited, 1);
    let shown = kit.get(kit.admin, &format!("{PATH}/{}", made["id"].as_str().unwrap())).await.ok();
    assert_eq!(shown, made);
}

#[tokio::test]
async fn above_the_policy_another_administrator_decides_and_nobody_decides_twice() {
    let kit = Kit::new().await;
    kit.policy("billing.adjustment_approval_minor", 1000).await;
    let made = kit.adjust(json!({ "kind": "promo", "amount_minor": 1001 })).await.ok();
    assert_eq!(made["state"], "proposed");
    assert_eq!(balance(&kit).await, 0, "nothing is posted before it is approved");
    let approve = format!("{PATH}/{}/approve", made["id"].as_str().unwrap());
    let own = kit.call(kit.admin, Method::POST, &approve, None).await;
    assert_eq!((own.status, own.code().as_str()), (StatusCode::FORBIDDEN, "insufficient_permissions"));
    assert!(own.text().contains("another administrator"), "{}", own.text());
    let stranger = kit.call(kit.owner, Method::POST, &approve, None).await;
    assert_eq!(stranger.status, StatusCode::FORBIDDEN);
    let done = kit.call(kit.other_admin, Method::POST, &approve, None).await.ok();
    assert_eq!((done["state"].as_str(), done["version"].as_i64()), (Some("posted"), Some(2)));
    assert_eq!(done["decided_by"], kit.other_admin.to_string());
    assert_eq!(balance(&kit).await, 1001);
    for path in [approve.clone(), approve.replace("approve", "reject")] {
        let again = kit.call(kit.other_admin, Method::POST, &path, None).await;
        assert_eq!((again.status, again.code().as_str()), (StatusCode::CONFLICT, "invalid_transition"));
    }
    assert_eq!(balance(&kit).await, 1001);
}

#[tokio::test]
async fn what_is_rejected_is_never_posted() {
    let kit = Kit::new().await;
    kit.policy("billing.adjustment_approval_minor", 0).await;
    let made = kit.adjust(json!({ "kind": "credit", "amount_minor": 1 })).await.ok();
    let reject = format!("{PATH}/{}/reject", made["id"].as_str().unwrap());
    assert_eq!(kit.call(kit.admin, Method::POST, &reject, None).await.status, StatusCode::FORBIDDEN);
    let done = kit.call(kit.other_admin, Method::POST, &reject, None).await.ok();
    assert_eq!(done["state"], "rejected");
    let approve = kit.call(kit.other_admin, Method::POST, &reject.replace("reject", "approve"), None).await;
    assert_eq!(approve.status, StatusCode::CONFLICT);
    assert_eq!(kit.one::<i64>("SELECT count(*) FROM ledger_postings").await, 0);
    let listed = kit.get(kit.admin, &format!("{PATH}?state=rejected&org_id={}", kit.org)).await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(kit.get(kit.admin, &format!("{PATH}?state=posted")).await.ok()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_who_approve_at_once_post_once() {
    let kit = Kit::new().await;
    kit.policy("billing.adjustment_approval_minor", 0).await;
    for _ in 0..5 {
        let before = balance(&kit).await;
        let made = kit.adjust(json!({ "kind": "credit", "amount_minor": 70 })).await.ok();
        let approve = format!("{PATH}/{}/approve", made["id"].as_str().unwrap());
        let call = || kit.call(kit.other_admin, Method::POST, &approve, None);
        let (a, b, c) = tokio::join!(call(), call(), call());
        let statuses = [a.status, b.status, c.status];
        let won = statuses.iter().filter(|status| **status == StatusCode::OK).count();
        let lost = statuses.iter().filter(|status| **status == StatusCode::CONFLICT).count();
        assert_eq!((won, lost), (1, 2), "{statuses:?}");
        assert_eq!(balance(&kit).await, before + 70);
    }
}

#[tokio::test]
async fn a_correction_names_a_posting_of_the_same_organization() {
    let kit = Kit::new().await;
    kit.fund(1000).await;
    let own: uuid::Uuid = kit.one("SELECT id FROM ledger_postings").await;
    let own = kernel::ids::PostingId::from(own);
    let nobody = kernel::ids::PostingId::from(uuid::Uuid::from_u128(7));
    for (body, field) in [
        (json!({ "kind": "correction", "amount_minor": 5 }), "corrects_entry_id"),
        (
            json!({ "kind": "correction", "amount_minor": 5, "corrects_entry_id": nobody }),
            "corrects_entry_id",
        ),
        (json!({ "kind": "credit", "amount_minor": 5, "corrects_entry_id": own }), "corrects_entry_id"),
        (json!({ "kind": "credit", "amount_minor": -5 }), "amount_minor"),
        (json!({ "kind": "credit", "amount_minor": 0 }), "amount_minor"),
    ] {
        let refused = kit.adjust(body.clone()).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(refused.json()["error"]["details"]["fields"][0]["field"], field, "{body}");
    }
    kit.adjust(json!({ "kind": "correction", "amount_minor": -300, "corrects_entry_id": own })).await.ok();
    assert_eq!(balance(&kit).await, 700);
    let kept: uuid::Uuid =
        kit.one("SELECT corrects_entry_id FROM ledger_postings WHERE kind = 'correction'").await;
    assert_eq!(kept, own.uuid());
    let nowhere = json!({ "org_id": kernel::ids::OrgId::from(uuid::Uuid::from_u128(9)), "kind": "credit", "amount_minor": 1, "reason": "why" });
    let refused = kit.call(kit.admin, Method::POST, PATH, Some(nowhere)).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::NOT_FOUND, "not_found"));
}
