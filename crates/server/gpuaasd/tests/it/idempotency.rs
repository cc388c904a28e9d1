//! One key, one effect, one answer.

use serde_json::json;
use testkit::{Idp, Server, ServerOptions, TestDb, World};

use crate::commit_trap::CommitTrap;

#[tokio::test]
async fn a_replay_returns_the_stored_response_and_changes_nothing() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let path = format!("/api/v1/orgs/{org}/projects");
    let body = json!({ "name": "Training", "slug": "training" });
    let first = world.admin.post_once("key-1", &path, body.clone()).await;
    assert!(first.headers.get("idempotency-replayed").is_none());
    let audited = "SELECT count(*) FROM audit_logs WHERE action = 'project.create'";
    let before = world.count(audited).await;
    let again = world.admin.post_once("key-1", &path, body).await;
    assert_eq!(again.headers.get("idempotency-replayed").map(|v| v.as_bytes()), Some(&b"true"[..]));
    assert_eq!((first.status, &first.text), (again.status, &again.text));
    assert_eq!(world.count("SELECT count(*) FROM projects WHERE slug = 'training'").await, 1);
    assert_eq!(world.count(audited).await, before);
}

#[tokio::test]
async fn the_same_key_with_another_body_or_target_is_refused_and_another_principal_s_key_is_their_own() {
    let world = World::start().await;
    let (org, other) = (world.org("acme").await, world.org("other").await);
    let path = format!("/api/v1/orgs/{org}/projects");
    world.admin.post_once("key-1", &path, json!({ "name": "A", "slug": "a" })).await.expect(201);
    let reused = world.admin.post_once("key-1", &path, json!({ "name": "B", "slug": "b" })).await;
    reused.refused(400, "idempotency_key_reused");
    let elsewhere = format!("/api/v1/orgs/{other}/projects");
    world
        .admin
        .post_once("key-1", &elsewhere, json!({ "name": "A", "slug": "a" }))
        .await
        .refused(400, "idempotency_key_reused");
    assert_eq!(world.count("SELECT count(*) FROM projects WHERE slug IN ('a', 'b')").await, 1);

    let ada = world.person("ada").await;
    let mine = format!("/api/v1/orgs/{}/projects", ada.org_id);
    ada.api.post_once("key-1", &mine, json!({ "name": "A", "slug": "a" })).await.expect(201);
}

#[tokio::test]
async fn fifty_concurrent_requests_with_one_key_have_one_effect() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let path = format!("/api/v1/orgs/{org}/projects");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (api, path) = (world.admin.clone(), path.clone());
        tasks.spawn(async move {
            api.post_once("one-key", &path, json!({ "name": "Once", "slug": "once" })).await
        });
    }
    let answers = tasks.join_all().await;
    let bodies: std::collections::BTreeSet<&str> = answers.iter().map(|a| a.text.as_str()).collect();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    assert!(answers.iter().all(|a| a.status == 201));
    assert_eq!(answers.iter().filter(|a| a.headers.contains_key("idempotency-replayed")).count(), 49);
    assert_eq!(world.count("SELECT count(*) FROM projects WHERE slug = 'once'").await, 1);
    let audited = world.count("SELECT count(*) FROM audit_logs WHERE action = 'project.create' AND result = 'allowed' AND org_id IN (SELECT org_id FROM projects WHERE slug = 'once')").await;
    assert_eq!(audited, 1, "one effect, one audit row");
}

#[tokio::test]
async fn an_effect_whose_answer_died_with_the_process_is_replayed_by_the_next_one() {
    let db = TestDb::create().await;
    let idp = Idp::start().await;
    let trap = CommitTrap::set_up().await;
    let options = ServerOptions { roles: "api".to_owned(), ..idp.options() };
    let mut server = Server::start_on(&trap.database_section(&db.name), options).await;
    let api = server.api().with_token(idp.token("ada", "1"));
    let orgs = api.get("/api/v1/orgs").await.expect(200);
    let path = format!("/api/v1/orgs/{}/projects", orgs["items"][0]["id"].as_str().unwrap());

    trap.arm(server.pid());
    let request = api
        .request(reqwest::Method::POST, &path)
        .header("x-idempotency-key", "k")
        .json(&json!({ "name": "P", "slug": "p" }));
    request.send().await.expect_err("the server died before it could answer");
    server.kill();
    server.spawn();
    server.ready().await;

    let retried = api.post_once("k", &path, json!({ "name": "P", "slug": "p" })).await;
    assert_eq!(retried.headers.get("idempotency-replayed").map(|v| v.as_bytes()), Some(&b"true"[..]));
    let made = retried.expect(201);
    assert_eq!(made["slug"], "p");
    let mut conn = db.conn(pg::Roles::Admin).await;
    let projects: i64 = sqlx::query_scalar("SELECT count(*) FROM projects WHERE slug = 'p'")
        .fetch_one(&mut conn)
        .await
        .unwrap();
    assert_eq!(projects, 1);
}

#[tokio::test]
async fn a_refused_request_stores_nothing_and_may_be_repeated_with_its_key() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let path = format!("/api/v1/orgs/{org}/projects");
    world
        .admin
        .post_once("k", &path, json!({ "name": "A", "slug": "not a slug" }))
        .await
        .refused(400, "validation_error");
    world.admin.post_once("k", &path, json!({ "name": "A", "slug": "a" })).await.expect(201);
}

#[tokio::test]
async fn a_secret_shown_once_is_replayed_but_never_readable_in_the_database() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let path = format!("/api/v1/orgs/{org}/invitations");
    let body = json!({ "email": "ada@example.org", "role": "member" });
    let made = world.admin.post_once("k", &path, body.clone()).await.expect(201);
    let again = world.admin.post_once("k", &path, body).await.expect(201);
    let token = made["token"].as_str().unwrap();
    assert_eq!(again["token"], token);
    let stored = world.count("SELECT count(*) FROM idempotency_records WHERE body IS NOT NULL").await;
    assert_eq!(stored, 1);
    let readable = format!(
        "SELECT count(*) FROM idempotency_records WHERE position(convert_to('{token}', 'UTF8') IN body) > 0"
    );
    assert_eq!(world.count(&readable).await, 0);
}

#[tokio::test]
async fn a_retry_finds_its_answer_although_the_first_try_took_away_what_it_acted_on() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let ada = world.person("ada").await;
    let body = json!({ "email": "ada@example.org", "role": "member" });
    let made = world.admin.post(&format!("/api/v1/orgs/{org}/invitations"), body).await.expect(201);
    let path = format!("/api/v1/invitations/{}/accept", made["id"].as_str().unwrap());
    let accept = json!({ "token": made["token"] });
    let first = ada.api.post_once("k", &path, accept.clone()).await;
    let again = ada.api.post_once("k", &path, accept).await;
    assert_eq!((first.status, &first.text), (again.status, &again.text));
    assert_eq!(again.headers.get("idempotency-replayed").map(|v| v.as_bytes()), Some(&b"true"[..]));

    let project = world.project(&org, "short-lived").await;
    let delete = || {
        let request = world.admin.request(reqwest::Method::DELETE, &format!("/api/v1/projects/{project}"));
        world.admin.send(request.header("x-idempotency-key", "d"))
    };
    delete().await.expect(204);
    delete().await.expect(204);
    // Nobody else learns anything by guessing the key.
    let eve = world.person("eve").await;
    let request = eve.api.request(reqwest::Method::DELETE, &format!("/api/v1/projects/{project}"));
    eve.api.send(request.header("x-idempotency-key", "d")).await.refused(404, "not_found");
}
