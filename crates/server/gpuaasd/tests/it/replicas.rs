//! Two replicas on one database behave as one service.

use std::time::Duration;

use serde_json::json;
use testkit::{World, eventually, eventually_within};

#[tokio::test]
async fn a_session_revoked_on_one_replica_is_refused_by_the_other_within_five_seconds() {
    let world = World::start().await;
    let second = world.replica().await;
    let ada = world.person("ada").await;
    let phone = ada.api.with_token(world.idp.token("ada", "phone")).at(&second.base);
    let session = phone.get("/api/v1/me").await.expect(200)["session_id"].as_str().unwrap().to_owned();
    phone.get("/api/v1/orgs").await.expect(200);
    ada.api.delete(&format!("/api/v1/me/sessions/{session}")).await.expect(204);
    // On the replica that did it, at once.
    phone.at(&world.server.base).get("/api/v1/me").await.refused(401, "token_revoked");
    eventually_within(Duration::from_secs(5), "the other replica refuses the session", || async {
        let answer = phone.get("/api/v1/me").await;
        (answer.status == 401 && answer.code() == "token_revoked").then_some(())
    })
    .await;
    ada.api.at(&second.base).get("/api/v1/me").await.expect(200);
}

#[tokio::test]
async fn revocation_holds_within_five_seconds_even_when_no_notification_arrives() {
    let world = World::start().await;
    let ada = world.person("ada").await;
    ada.api.get("/api/v1/me").await.expect(200);
    // Behind the server's back: no notification is sent.
    let revoked = world.count("WITH r AS (UPDATE account_sessions SET revoked_at = now() WHERE issuer_sid = 'ada-1' RETURNING 1) SELECT count(*) FROM r").await;
    assert_eq!(revoked, 1);
    eventually_within(Duration::from_secs(5), "the cached session runs out", || async {
        (ada.api.get("/api/v1/me").await.status == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_removed_member_and_a_changed_policy_are_noticed_by_the_other_replica() {
    let world = World::start().await;
    let second = world.replica().await;
    let org = world.org("acme").await;
    let ada = world.person("ada").await;
    world.join(&ada, &org, "member").await;
    let there = ada.api.at(&second.base);
    let path = format!("/api/v1/orgs/{org}");
    eventually("the membership is seen", || async { (there.get(&path).await.status == 200).then_some(()) })
        .await;
    world.admin.delete(&format!("/api/v1/orgs/{org}/members/{}", ada.id)).await.expect(204);
    ada.api.get(&path).await.refused(404, "not_found");
    eventually_within(Duration::from_secs(5), "the removal is seen", || async {
        (there.get(&path).await.status == 404).then_some(())
    })
    .await;

    let policy = "/api/v1/platform/policies/rate_limit.api_requests_per_minute";
    world.admin.put(policy, json!({ "value": 5_000_000 })).await.expect(200);
    eventually_within(Duration::from_secs(5), "the new limit is in force there", || async {
        let limit = there.get("/api/v1/me").await.headers.get("x-ratelimit-limit").cloned();
        (limit.as_ref().map(|v| v.as_bytes()) == Some(b"5000000")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn rate_limits_are_enforced_told_and_counted_per_replica() {
    let world = World::start().await;
    let second = world.replica().await;
    let ada = world.person("ada").await;
    let policy = "/api/v1/platform/policies/rate_limit.api_requests_per_minute";
    world.admin.put(policy, json!({ "value": 20 })).await.expect(200);
    let mut refused = None;
    for _ in 0..30 {
        let answer = ada.api.get("/api/v1/me").await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
        assert_eq!(answer.headers.get("x-ratelimit-limit").unwrap(), "20");
    }
    let refused = refused.expect("the budget ends");
    assert!(refused.headers.get("retry-after").unwrap().to_str().unwrap().parse::<u64>().unwrap() >= 1);
    refused.refused(429, "rate_limit_exceeded");
    // Documented: each replica has a budget of its own.
    assert_eq!(ada.api.at(&second.base).get("/api/v1/me").await.status, 200);
}
