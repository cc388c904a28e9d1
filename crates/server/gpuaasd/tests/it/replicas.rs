//! Two replicas on one database behave as one service.

use std::time::Duration;

use serde_json::json;
use testkit::{Server, ServerOptions, TestDb, World, eventually, eventually_within};

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
async fn a_service_account_key_revoked_on_one_replica_is_refused_by_the_other_within_five_seconds() {
    let world = World::start().await;
    // The built-in issuer is one for all replicas, so they share its address.
    let key_file = world.server.dir.path().join("data/secrets/master.key").display().to_string();
    let env = vec![
        ("GPUAAS__SERVER__PUBLIC_URL".to_owned(), world.server.base.clone()),
        ("GPUAAS__AUTH__MASTER_KEY_FILE".to_owned(), key_file),
        (
            "GPUAAS__OBJECTS__DIRECTORY".to_owned(),
            world.server.dir.path().join("data/objects").display().to_string(),
        ),
    ];
    let second = Server::start_with(&world.db, ServerOptions { env, ..world.idp.options() }).await;
    let project = world.project(&world.org("acme").await, "p").await;
    let accounts = format!("/api/v1/projects/{project}/service-accounts");
    let account = world.admin.post(&accounts, json!({ "name": "builder" })).await.expect(201);
    let keys = format!("{accounts}/{}/keys", account["id"].as_str().unwrap());
    let key = world.admin.post(&keys, json!({})).await.expect(201);
    let (id, secret) = (key["id"].as_str().unwrap(), key["secret"].as_str().unwrap());
    let form = [("grant_type", "client_credentials"), ("client_id", id), ("client_secret", secret)];
    let exchange = |api: testkit::Api| async move {
        api.send(api.request(reqwest::Method::POST, "/auth/token").form(&form)).await
    };
    let token = exchange(second.api()).await.expect(200)["access_token"].as_str().unwrap().to_owned();
    let (here, there) = (world.server.api().with_token(&token), second.api().with_token(&token));
    let path = format!("/api/v1/projects/{project}");
    here.get(&path).await.expect(200);
    there.get(&path).await.expect(200);

    world.admin.delete(&format!("{keys}/{id}")).await.expect(204);
    here.get(&path).await.refused(401, "token_revoked");
    eventually_within(Duration::from_secs(5), "the other replica refuses the key's token", || async {
        let answer = there.get(&path).await;
        (answer.status == 401 && answer.code() == "token_revoked").then_some(())
    })
    .await;
    for api in [world.server.api(), second.api()] {
        assert_eq!(exchange(api).await.expect(401)["error"], "invalid_client");
    }
}

#[tokio::test]
async fn two_replicas_started_at_once_on_an_empty_database_both_become_ready() {
    let db = TestDb::empty().await;
    let shared = tempfile::tempdir().unwrap();
    let key_file = shared.path().join("master.key").display().to_string();
    let mut servers = [0, 1].map(|_| {
        let env = vec![
            ("GPUAAS__AUTH__MASTER_KEY_FILE".to_owned(), key_file.clone()),
            ("GPUAAS__OBJECTS__DIRECTORY".to_owned(), shared.path().join("objects").display().to_string()),
        ];
        let database = format!("[database]\nurl = \"{}\"\n", db.url());
        Server::prepare(&database, ServerOptions { env, ..ServerOptions::default() })
    });
    for server in &mut servers {
        server.spawn();
    }
    for server in &mut servers {
        server.ready().await;
        server.api().get("/readyz").await.expect(200);
    }
    let mut conn = db.conn(pg::Roles::Admin).await;
    let done: Vec<(i64, bool)> =
        sqlx::query_as("SELECT version, success FROM _sqlx_migrations ORDER BY version")
            .fetch_all(&mut conn)
            .await
            .unwrap();
    let known: Vec<(i64, bool)> = pg::MIGRATOR.iter().map(|migration| (migration.version, true)).collect();
    assert!(!known.is_empty());
    assert_eq!(done, known);
    // And one of them made the first administrator.
    let made = servers.iter().filter(|s| s.dir.path().join("data/first-admin-password").exists()).count();
    let admins: i64 =
        sqlx::query_scalar("SELECT count(*) FROM platform_bindings").fetch_one(&mut conn).await.unwrap();
    assert_eq!((made, admins), (1, 1));
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
