//! A poison message: dead-lettered, visible, requeued, handled.

use serde_json::json;
use testkit::{World, eventually};

/// A membership event about somebody who does not exist: the consumer cannot handle it.
async fn plant(world: &World, org: &str, user: &str) {
    let sql = format!(
        "INSERT INTO outbox_events (event_id, stream, event_type, version, occurred_at, correlation_id, org_id, payload)
         VALUES (gen_random_uuid(), 'IDENTITY', 'identity.member.added', 1, now(), gen_random_uuid(), '{}',
                 '{}'::jsonb)",
        &org[4..],
        json!({ "org_id": org, "user_id": user, "role": "member" }),
    );
    let mut conn = world.db.conn(pg::Roles::Admin).await;
    sqlx::Executor::execute(&mut conn, sqlx::AssertSqlSafe(sql)).await.unwrap();
}

#[tokio::test]
async fn a_poison_message_is_dead_lettered_visible_requeued_and_handled() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let ghost = "user_0193b3a000007000800000000000dead";
    let body = json!({ "email": "ghost@example.org", "role": "member" });
    let invitation = world.admin.post(&format!("/api/v1/orgs/{org}/invitations"), body).await.expect(201);
    plant(&world, &org, ghost).await;

    let letter = eventually("the message is dead-lettered", || async {
        let list = world.admin.get("/api/v1/platform/dead-letters").await.expect(200);
        list["items"].as_array().and_then(|items| items.first().cloned())
    })
    .await;
    let path = format!("/api/v1/platform/dead-letters/{}", letter["id"].as_str().unwrap());
    let shown = world.admin.get(&path).await.expect(200);
    assert!(shown.to_string().contains("identity.member.added"), "{shown}");
    assert!(shown.to_string().contains(ghost), "{shown}");

    // The cause is fixed: the person exists now. Their pending invitation is what the consumer closes.
    let uuid = &ghost[5..];
    let fix = format!(
        "WITH u AS (INSERT INTO users (id, issuer, subject, email, name, created_at, updated_at)
            VALUES ('{uuid}', 'i', 'ghost', 'ghost@example.org', 'Ghost', now(), now()) RETURNING 1) SELECT count(*) FROM u"
    );
    assert_eq!(world.count(&fix).await, 1);
    assert!(world.admin.post(&format!("{path}/requeue"), json!({})).await.status < 300);
    eventually("the requeued message is handled", || async {
        let path = format!("/api/v1/orgs/{org}/invitations/{}", invitation["id"].as_str().unwrap());
        (world.admin.get(&path).await.expect(200)["state"] == "revoked").then_some(())
    })
    .await;
    let audited = world
        .count("SELECT count(*) FROM audit_logs WHERE action = 'dead_letter.requeue' AND result = 'allowed'")
        .await;
    assert_eq!(audited, 1);
}

#[tokio::test]
async fn a_dead_letter_can_be_discarded_with_a_reason_only() {
    let world = World::start().await;
    let org = world.org("acme").await;
    plant(&world, &org, "user_0193b3a000007000800000000000dead").await;
    let letter = eventually("the message is dead-lettered", || async {
        let list = world.admin.get("/api/v1/platform/dead-letters").await.expect(200);
        list["items"].as_array().and_then(|items| items.first().cloned())
    })
    .await;
    let path = format!("/api/v1/platform/dead-letters/{}/discard", letter["id"].as_str().unwrap());
    world.admin.post(&path, json!({})).await.refused(400, "validation_error");
    assert!(world.admin.post(&path, json!({ "reason": "the person left" })).await.status < 300);
    world.admin.post(&path, json!({ "reason": "again" })).await.refused(409, "invalid_transition");
}
