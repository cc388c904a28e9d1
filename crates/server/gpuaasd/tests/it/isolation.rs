//! Tenants cannot see, change or infer each other's things.

use serde_json::json;
use testkit::World;

#[tokio::test]
async fn what_a_caller_may_not_know_exists_is_not_found() {
    let world = World::start().await;
    let org = world.org("secret").await;
    let project = world.project(&org, "p").await;
    let eve = world.person("eve").await;
    for path in [
        format!("/api/v1/orgs/{org}"),
        format!("/api/v1/orgs/{org}/projects"),
        format!("/api/v1/orgs/{org}/members"),
        format!("/api/v1/orgs/{org}/audit"),
        format!("/api/v1/projects/{project}"),
        format!("/api/v1/projects/{project}/service-accounts"),
    ] {
        let hidden = eve.api.get(&path).await.refused(404, "not_found");
        let absent =
            eve.api.get(&path.replace(&org[4..12], "00000000").replace(&project[5..13], "00000000")).await;
        let absent = absent.refused(404, "not_found");
        let strip = |mut body: serde_json::Value| {
            body["error"]["correlation_id"] = json!(null);
            body
        };
        assert_eq!(
            strip(hidden),
            strip(absent),
            "a hidden thing must look exactly like an absent one: {path}"
        );
    }
    eve.api
        .patch(&format!("/api/v1/projects/{project}"), json!({ "name": "mine" }))
        .await
        .refused(404, "not_found");
    let listed = eve.api.get("/api/v1/orgs").await.expect(200);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn an_outsider_s_attempt_is_audited_on_the_platform_s_chain_and_a_member_s_on_the_organization_s() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let (eve, val) = (world.person("eve").await, world.person("val").await);
    world.join(&val, &org, "viewer").await;
    let path = format!("/api/v1/orgs/{org}/projects");
    eve.api.post(&path, json!({ "name": "x", "slug": "x" })).await.refused(404, "not_found");
    val.api.post(&path, json!({ "name": "x", "slug": "x" })).await.refused(403, "insufficient_permissions");
    let refused = |who: &testkit::Person| {
        let uuid = who.id.trim_start_matches("user_").to_owned();
        format!(
            "SELECT count(*) FROM audit_logs WHERE result = 'refused' AND action = 'project.create' AND actor_id = '{uuid}' AND org_id "
        )
    };
    let nil = "= '00000000-0000-0000-0000-000000000000'";
    assert_eq!(world.count(&(refused(&eve) + nil)).await, 1);
    assert_eq!(world.count(&(refused(&val) + "= '" + &org[4..] + "'")).await, 1);
    let seen = world.admin.get(&format!("/api/v1/orgs/{org}/audit?result=refused")).await.expect(200);
    assert_eq!(seen["items"].as_array().map(Vec::len), Some(1), "{seen}");
}

#[tokio::test]
async fn repeats_of_a_refusal_are_counted_and_recorded_with_their_number() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let val = world.person("val").await;
    world.join(&val, &org, "viewer").await;
    let path = format!("/api/v1/orgs/{org}/projects");
    for _ in 0..6 {
        val.api
            .post(&path, json!({ "name": "x", "slug": "x" }))
            .await
            .refused(403, "insufficient_permissions");
    }
    // The minute may have ended between two of them.
    let counted =
        "SELECT (SELECT count(*) FROM audit_logs WHERE result = 'refused' AND action = 'project.create')
        + (SELECT sum(repeats) FROM refusal_windows)::bigint";
    assert_eq!(world.count(counted).await, 6);
    assert!(world.count("SELECT count(*) FROM audit_logs WHERE result = 'refused'").await <= 2);
    // As if the minute were over; the job of the running server does the rest.
    world.db.sql("UPDATE refusal_windows SET minute = minute - interval '2 minutes'").await;
    let listed = format!("/api/v1/orgs/{org}/audit?result=refused&action=project.create");
    let repeats = testkit::eventually("the repeats are in the trail", async || {
        let trail = world.admin.get(&listed).await.expect(200);
        let rows = trail["items"].as_array().cloned().unwrap_or_default();
        rows.iter().find_map(|row| row["repeats"].as_i64())
    })
    .await;
    assert!((4..=5).contains(&repeats), "{repeats}");
}

#[tokio::test]
async fn a_header_that_names_another_project_than_the_path_is_refused() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let (one, two) = (world.project(&org, "one").await, world.project(&org, "two").await);
    let path = format!("/api/v1/projects/{one}");
    let request =
        |header: &str| world.admin.request(reqwest::Method::GET, &path).header("x-project-id", header);
    world.admin.send(request(&two)).await.refused(400, "invalid_request");
    world.admin.send(request(&one)).await.expect(200);
}

#[tokio::test]
async fn a_suspended_organization_can_be_read_but_not_changed() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let ada = world.person("ada").await;
    world.join(&ada, &org, "owner").await;
    let suspend = format!("/api/v1/platform/orgs/{org}/suspend");
    assert!(world.admin.post(&suspend, json!({ "reason": "unpaid invoices" })).await.status < 300);
    ada.api.get(&format!("/api/v1/orgs/{org}")).await.expect(200);
    let path = format!("/api/v1/orgs/{org}/projects");
    ada.api.post(&path, json!({ "name": "x", "slug": "x" })).await.refused(403, "tenant_suspended");
    assert!(world.admin.post(&suspend.replace("suspend", "resume"), json!({})).await.status < 300);
    ada.api.post(&path, json!({ "name": "x", "slug": "x" })).await.expect(201);
}
