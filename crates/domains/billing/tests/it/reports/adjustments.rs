//! Adjustments: small ones at once, large ones with a second administrator, each posted once.

use http::{Method, StatusCode};
use serde_json::json;

use super::kit::Kit;

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
async fn who_may_approve_is_told_once_of_what_waits_and_never_of_what_does_not() {
    let kit = Kit::new().await;
    kit.policy("billing.adjustment_approval_minor", 1000).await;
    let told = "SELECT coalesce(jsonb_agg(payload ORDER BY position), '[]') FROM outbox_events
         WHERE event_type = 'billing.adjustment_waiting'";
    kit.adjust(json!({ "kind": "credit", "amount_minor": 1000 })).await.ok();
    assert_eq!(kit.one::<serde_json::Value>(told).await, json!([]), "it does not wait");
    let made = kit.adjust(json!({ "kind": "credit", "amount_minor": 1 })).await.ok();
    assert_eq!(made["state"], "proposed");
    let events = kit.one::<serde_json::Value>(told).await;
    let event = &events[0];
    assert_eq!((&event["adjustment_id"], &event["proposed_by"]), (&made["id"], &json!(kit.admin)));
    assert_eq!((&event["amount_minor"], &event["org_id"]), (&json!(1), &json!(kit.org)));
    let approve = format!("{PATH}/{}/approve", made["id"].as_str().unwrap());
    assert_eq!(kit.call(kit.admin, Method::POST, &approve, None).await.status, StatusCode::FORBIDDEN);
    kit.call(kit.other_admin, Method::POST, &approve, None).await.ok();
    assert_eq!(kit.one::<serde_json::Value>(told).await.as_array().unwrap().len(), 1);
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

/// An adjustment of another organization, by somebody.
async fn adjust_as(
    kit: &Kit,
    who: kernel::ids::UserId,
    org: &kernel::ids::OrgId,
    kind: &str,
    amount: i64,
) -> String {
    let body = json!({ "org_id": org, "kind": kind, "amount_minor": amount, "reason": "because" });
    let made = kit.call(who, Method::POST, PATH, Some(body)).await.ok();
    made["state"].as_str().unwrap().to_owned()
}

async fn another_org(kit: &Kit, slug: &str) -> kernel::ids::OrgId {
    testworld::Tenants::new(&kit.test.db).tenant(slug).await.org
}

#[tokio::test]
async fn small_adjustments_add_up_over_a_day_per_clerk_and_per_organization() {
    let kit = Kit::new().await;
    kit.policy("billing.adjustment_approval_minor", 1000).await;
    let (acme, other) = (kit.org, another_org(&kit, "other").await);
    assert_eq!(adjust_as(&kit, kit.admin, &acme, "credit", 600).await, "posted");
    // The same clerk for the same organization, and for another one.
    assert_eq!(adjust_as(&kit, kit.admin, &acme, "promo", 401).await, "proposed");
    assert_eq!(adjust_as(&kit, kit.admin, &other, "credit", 401).await, "proposed");
    // Another clerk for the organization that had some; for one that had none there is room.
    assert_eq!(adjust_as(&kit, kit.other_admin, &acme, "credit", 401).await, "proposed");
    assert_eq!(adjust_as(&kit, kit.other_admin, &other, "credit", 700).await, "posted");
    // What waits for somebody does not count, and up to the limit nobody is needed.
    assert_eq!(adjust_as(&kit, kit.admin, &acme, "promo", 400).await, "posted");
    assert_eq!(adjust_as(&kit, kit.admin, &acme, "promo", 1).await, "proposed");
    // A day later it begins anew; not a second before.
    kit.pass(86_399);
    assert_eq!(adjust_as(&kit, kit.admin, &acme, "credit", 1).await, "proposed");
    kit.pass(1);
    assert_eq!(adjust_as(&kit, kit.admin, &acme, "credit", 1000).await, "posted");
}

#[tokio::test]
async fn what_a_second_administrator_approved_does_not_count_and_losses_do() {
    let kit = Kit::new().await;
    kit.policy("billing.adjustment_approval_minor", 1000).await;
    let made = kit.adjust(json!({ "kind": "credit", "amount_minor": 5000 })).await.ok();
    let approve = format!("{PATH}/{}/approve", made["id"].as_str().unwrap());
    kit.call(kit.other_admin, Method::POST, &approve, None).await.ok();
    let posting: uuid::Uuid = kit.one("SELECT id FROM ledger_postings").await;
    let corrects = kernel::ids::PostingId::from(posting);
    let take = json!({ "kind": "correction", "amount_minor": -700, "corrects_entry_id": corrects });
    assert_eq!(kit.adjust(take.clone()).await.ok()["state"], "posted");
    assert_eq!(kit.adjust(take).await.ok()["state"], "proposed");
    assert_eq!(kit.adjust(json!({ "kind": "credit", "amount_minor": 301 })).await.ok()["state"], "proposed");
    assert_eq!(kit.adjust(json!({ "kind": "credit", "amount_minor": 300 })).await.ok()["state"], "posted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adjustments_asked_for_at_once_do_not_slip_past_the_sum() {
    let kit = Kit::new().await;
    kit.policy("billing.adjustment_approval_minor", 1000).await;
    let asked = (0..12).map(|_| kit.adjust(json!({ "kind": "credit", "amount_minor": 300 })));
    let answers = futures_util::future::join_all(asked).await;
    let posted = answers.iter().filter(|answer| answer.ok()["state"] == "posted").count();
    assert_eq!((posted, balance(&kit).await), (3, 900));
}
