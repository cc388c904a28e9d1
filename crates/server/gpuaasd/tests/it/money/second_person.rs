//! The second pair of eyes, through the listener: what decides about it is changed by two people.

use serde_json::json;
use testkit::World;

const LIMIT: &str = "/api/v1/platform/policies/billing.adjustment_approval_minor";
const CHANGES: &str = "/api/v1/platform/sensitive-changes";

#[tokio::test]
async fn one_administrator_neither_moves_the_amount_nor_makes_another_approver() {
    let world = World::start().await;
    let (second, puppet) = (world.person("second").await, world.person("puppet").await);
    world.grant_platform_role(&second, "platform_admin").await;
    let roles = format!("/api/v1/platform/users/{}/roles", puppet.id);
    let admin = json!({ "roles": ["platform_admin"] });
    for refused in
        [world.admin.put(LIMIT, json!({ "value": 1_000_000 })).await, world.admin.put(&roles, admin).await]
    {
        let refused = refused.refused(403, "insufficient_permissions");
        assert_eq!(refused["error"]["details"]["reason"], "second_approver_required", "{refused}");
        assert!(
            refused["error"]["suggestion"]
                .as_str()
                .is_some_and(|text| text.contains("platform changes propose"))
        );
    }
    let policy = json!({ "value": 5, "reason": "we agreed" });
    let policy = world.admin.post(&format!("{LIMIT}/proposals"), policy).await.expect(201);
    let binding = json!({ "roles": ["platform_admin"], "reason": "we agreed" });
    let binding = world.admin.post(&format!("{roles}/proposals"), binding).await.expect(201);
    for change in [&policy, &binding] {
        let approve = format!("{CHANGES}/{}/approve", change["id"].as_str().expect("an id"));
        world.admin.post(&approve, json!({})).await.refused(403, "insufficient_permissions");
        puppet.api.post(&approve, json!({})).await.refused(403, "admin_required");
        assert_eq!(second.api.post(&approve, json!({})).await.expect(200)["state"], "applied");
    }
    assert_eq!(world.admin.get(LIMIT).await.expect(200)["value"], 5);
    let applied = world.admin.get(&format!("{CHANGES}?state=applied")).await.expect(200);
    assert_eq!(applied["items"].as_array().map(Vec::len), Some(2), "{applied}");
    let audited =
        "SELECT count(*) FROM audit_logs WHERE action = 'sensitive_change.approve' AND result = 'allowed'";
    assert_eq!(world.count(audited).await, 2);
}
