//! An answer that lasts ends within five seconds of the right to have it.

use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::json;
use sqlx::{Connection as _, Executor as _};
use testkit::{Api, World};

const WITHIN: Duration = Duration::from_secs(5);

async fn open(api: &Api, path: &str) -> Response {
    let response = api.request(Method::GET, path).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200, "{path}");
    response
}

/// Reads on; whether the stream came to an end of its own.
async fn until_ended(mut stream: Response) -> bool {
    let ended = async {
        loop {
            match stream.chunk().await {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    };
    tokio::time::timeout(WITHIN, ended).await.expect("the stream ends")
}

/// Ends a session from another one of the same person.
async fn sign_out(world: &World, name: &str, session: &Api) {
    let me = session.get("/api/v1/me").await.expect(200);
    let id = me["session_id"].as_str().unwrap().to_owned();
    let other = session.with_token(world.idp.token(name, "other"));
    other.delete(&format!("/api/v1/me/sessions/{id}")).await.expect(204);
}

#[tokio::test]
async fn a_stream_of_events_ends_with_its_session_and_with_the_membership() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let project = world.project(&org, "p").await;
    let ada = world.person("ada").await;
    world.join(&ada, &org, "member").await;
    let member = json!({ "role": "admin" });
    world.admin.put(&format!("/api/v1/projects/{project}/members/{}", ada.id), member).await.expect(200);
    let all = format!("/api/v1/projects/{project}/allocations/stream");
    let watched = open(&world.admin, &all).await;
    let mine = open(&ada.api, "/api/v1/me/notifications/stream").await;
    let phone = ada.api.with_token(world.idp.token("ada", "phone"));
    let kept = open(&phone, "/api/v1/me/notifications/stream").await;
    let allowed = open(&ada.api, &all).await;

    world.admin.delete(&format!("/api/v1/orgs/{org}/members/{}", ada.id)).await.expect(204);
    assert!(until_ended(allowed).await, "a stream of events ends, and is not cut");
    sign_out(&world, "ada", &ada.api).await;
    assert!(until_ended(mine).await);
    // Others go on.
    for mut stream in [kept, watched] {
        assert!(stream.chunk().await.unwrap().is_some(), "the stream has begun");
        let next = tokio::time::timeout(Duration::from_secs(2), stream.chunk()).await;
        assert!(next.is_err() || next.unwrap().unwrap().is_some(), "and lasts");
    }
}

#[tokio::test]
async fn a_question_that_waits_is_refused_when_its_session_ends() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(json!({ "sku": "h200-sxm-slice", "gpus": 1 })).await;
    let path = ann.path(&format!("/{id}?wait=30s&state=active"));
    let api = ann.api().clone();
    let waiting = tokio::spawn(async move { api.get(&path).await });
    sign_out(&world, "ann", ann.api()).await;
    let answer = tokio::time::timeout(WITHIN, waiting).await.expect("an answer").unwrap();
    answer.refused(401, "token_revoked");
}

#[tokio::test]
async fn an_export_is_cut_when_its_session_ends_so_that_half_is_not_taken_for_all() {
    let world = World::start().await;
    let org = world.org("acme").await;
    // The rows of the export are held back, so that it is surely under way.
    let mut held = world.db.conn(pg::Roles::Admin).await;
    held.execute("BEGIN; LOCK TABLE audit_logs IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let export = open(&world.admin, &format!("/api/v1/orgs/{org}/audit/export")).await;
    // Behind the server's back: neither an audit row nor a notification is needed for it.
    let revoked =
        "WITH r AS (UPDATE account_sessions SET revoked_at = now() WHERE issuer_sid = 'root-1' RETURNING 1)
                   SELECT count(*) FROM r";
    assert_eq!(world.count(revoked).await, 1);
    assert!(!until_ended(export).await, "what is not whole does not look whole");
    held.execute("ROLLBACK").await.unwrap();
    held.close().await.unwrap();
}
