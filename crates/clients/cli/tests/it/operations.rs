//! Output formats, raw requests, dead letters, and the small commands.

use serde_json::json;
use testkit::eventually;

use crate::kit::{Place, text};

#[tokio::test]
async fn a_list_is_a_table_json_yaml_or_csv() {
    let place = Place::start().await;
    place.org_and_project().await;
    let list = ["projects", "list", "--org", "acme"];
    let with = |more: &[&'static str]| [&list, more].concat();
    let table = place.admin.run(&list).await.ok();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("SLUG ") && lines[0].contains(" ID "), "{table}");
    // The one that every organization begins with, and ours.
    assert_eq!(lines.len(), 3, "{table}");
    assert!(!table.contains('\u{1b}'), "no colour where there is no terminal");
    let bare = place.admin.run(&with(&["--no-headers"])).await.ok();
    assert!(bare.contains(" proj_") && bare.lines().count() == 2, "{bare}");

    let items = place.admin.json(&list).await;
    let item = items[0].as_object().unwrap();
    for field in ["id", "org_id", "name", "slug", "version", "created_at", "updated_at"] {
        assert!(item.contains_key(field), "{field} is missing: JSON is complete");
    }
    let yaml = place.admin.run(&with(&["-o", "yaml"])).await.ok();
    assert!(yaml.contains("slug: lab\n"), "{yaml}");
    let csv = place.admin.run(&with(&["-o", "csv"])).await.ok();
    assert!(csv.starts_with("slug,name,created_at,id,org_id\n") && csv.contains(",proj_"), "{csv}");
    assert!(place.admin.run(&with(&["-o", "csv", "--no-headers"])).await.ok().contains(",proj_"));
    for number in 0..3 {
        place.admin.run(&["projects", "create", &format!("p{number}"), "--org", "acme"]).await.ok();
    }
    assert_eq!(place.admin.json(&with(&["--limit", "2"])).await.as_array().unwrap().len(), 2);
    assert_eq!(place.admin.json(&list).await.as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn any_request_can_be_sent_and_a_repeated_key_has_one_effect() {
    let place = Place::start().await;
    let (org, _) = place.org_and_project().await;
    let path = format!("/orgs/{org}/projects");
    let body = r#"{"name":"Raw","slug":"raw"}"#;
    let post = ["api", "POST", &path, "--data", "-", "-H", "X-Idempotency-Key: once"];
    let first = place.admin.run_with(&post, body).await.json();
    assert_eq!(place.admin.run_with(&post, body).await.json(), first);
    let projects = place.admin.json(&["api", "get", &format!("/api/v1{path}?page_size=200")]).await;
    assert_eq!(projects["items"].as_array().unwrap().len(), 3);
    let delete = format!("/projects/{}", text(&first["id"]));
    assert_eq!(place.admin.run(&["api", "DELETE", &delete]).await.ok(), "");
    place.admin.run(&["api", "GET", &delete]).await.fails(4);
    place.admin.run(&["api", "POST", &path, "--data", "{"]).await.fails(1);
    place.admin.run(&["api", "FETCH", "/me"]).await.fails(1);
}

/// A membership event about `user`: nobody can handle it while there is no such user.
async fn plant_member(place: &Place, org: &str, user: &str) {
    let plant = format!(
        "INSERT INTO outbox_events (event_id, stream, event_type, version, occurred_at, correlation_id, org_id, payload)
         VALUES (gen_random_uuid(), 'IDENTITY', 'identity.member.added', 1, now(), gen_random_uuid(), '{}', '{}'::jsonb)",
        &org[4..],
        json!({ "org_id": org, "user_id": user, "role": "member" }),
    );
    place.db.sql(&plant).await;
}

#[tokio::test]
async fn a_dead_letter_is_listed_shown_requeued_and_discarded() {
    let place = Place::start().await;
    let (org, _) = place.org_and_project().await;
    let ghost = "user_0193b3a000007000800000000000dead";
    plant_member(&place, &org, ghost).await;
    let dead = || async {
        let list = place.admin.json(&["ops", "dlq", "list", "--state", "dead"]).await;
        list.as_array().unwrap().first().cloned()
    };
    let letter = eventually("the message is dead-lettered", dead).await;
    let id = text(&letter["id"]);
    let shown = place.admin.json(&["ops", "dlq", "show", &id]).await;
    assert!(shown["envelope"].to_string().contains(ghost), "{shown}");
    let requeued = place.admin.json(&["ops", "dlq", "requeue", &id[id.len() - 12..]]).await;
    assert_eq!(requeued["state"], "requeued");
    // Its cause is still there, so it comes back.
    eventually("the message is dead again", dead).await;

    // The cause is fixed: the person exists now.
    let person = format!(
        "INSERT INTO users (id, issuer, subject, email, name, created_at, updated_at)
         VALUES ('{}', 'i', 'ghost', 'ghost@example.org', 'Ghost', now(), now())",
        &ghost[5..]
    );
    place.db.sql(&person).await;
    assert_eq!(place.admin.json(&["ops", "dlq", "requeue", &id]).await["state"], "requeued");
    eventually("the requeued message is handled", || async {
        (place.admin.json(&["ops", "dlq", "show", &id]).await["state"] == "resolved").then_some(())
    })
    .await;
    place.admin.run(&["ops", "dlq", "requeue", &id]).await.fails(5);

    plant_member(&place, &org, "user_0193b3a000007000800000000000beef").await;
    let id = text(&eventually("another message is dead-lettered", dead).await["id"]);
    place.admin.run(&["ops", "dlq", "discard", &id, "--reason", "the person left"]).await.fails(1);
    let discard = ["ops", "dlq", "discard", &id, "--reason", "the person left", "--yes"];
    place.admin.run(&discard).await.ok();
    assert_eq!(place.admin.json(&["ops", "dlq", "show", &id]).await["state"], "discarded");
    place.admin.run(&["ops", "dlq", "requeue", &id]).await.fails(5);
    let outbox = place.admin.json(&["ops", "outbox"]).await;
    assert!(outbox["pending"].is_u64(), "{outbox}");
}

#[tokio::test]
async fn the_doctor_finds_what_is_wrong() {
    let place = Place::start().await;
    let findings = place.admin.json(&["doctor"]).await;
    assert!(findings.as_array().unwrap().iter().all(|finding| finding["ok"] == true), "{findings}");
    let stranger = place.gpuaas().run(&["doctor"]).await;
    assert_eq!(stranger.code, Some(3), "{stranger:?}");
    assert!(stranger.out.contains("not signed in"), "{stranger:?}");
    let nowhere = place.admin.run(&["doctor", "--server", "http://127.0.0.1:1"]).await;
    assert_eq!(nowhere.code, Some(2), "{nowhere:?}");
}
