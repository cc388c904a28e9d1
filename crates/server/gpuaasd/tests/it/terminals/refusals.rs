//! Who does not get in.

use futures_util::SinkExt as _;
use serde_json::json;
use testkit::{World, invariants};
use tokio_tungstenite::tungstenite::{Error, Message, http::header};

use super::{
    Team,
    client::{Terminal, close_code, connect, connect_with, mint, request, token},
    slice,
};

const NOT_ACCEPTED: Option<u16> = Some(4401);

#[tokio::test]
async fn a_token_works_once_for_its_machine_in_its_time_and_never_in_a_url() {
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let (id, other) = (ann.active(slice(1)).await, ann.active(slice(1)).await);
    let server = &world.server;

    let (used, session) = token(&ann, &id, json!({})).await;
    let mut terminal = Terminal::attach(server, &id, &used, session, 0).await.unwrap();
    assert_eq!(close_code(connect(server, &id, &used).await).await, NOT_ACCEPTED, "a replay");
    terminal.run("true").await;
    let (foreign, _) = token(&ann, &id, json!({})).await;
    assert_eq!(close_code(connect(server, &other, &foreign).await).await, NOT_ACCEPTED, "another machine");
    assert_eq!(close_code(connect(server, &id, &foreign).await).await, NOT_ACCEPTED, "it is used up by that");
    let (late, _) = token(&ann, &id, json!({})).await;
    world.db.sql("UPDATE terminal_tokens SET expires_at = now() - interval '1 second'").await;
    assert_eq!(close_code(connect(server, &id, &late).await).await, NOT_ACCEPTED, "expired");
    for bad in ["", "x", "gpterm_", &format!("gpterm_{}", "A".repeat(43)), &late[1..]] {
        assert_eq!(close_code(connect(server, &id, bad).await).await, NOT_ACCEPTED, "{bad}");
    }
    let path = format!("/ws/terminal/{id}");
    let without = connect_with(server, request(server, &path)).await.unwrap();
    assert_eq!(close_code(without).await, NOT_ACCEPTED, "no token");

    let (fresh, session) = token(&ann, &id, json!({})).await;
    for query in [format!("token={fresh}"), format!("access_token={fresh}")] {
        let refused = connect_with(server, request(server, &format!("{path}?{query}"))).await;
        let Err(Error::Http(answer)) = refused else { panic!("a token in a URL") };
        assert_eq!(answer.status().as_u16(), 400);
    }
    let mut strange = request(server, &path);
    let headers = strange.headers_mut();
    headers.insert(header::AUTHORIZATION, format!("Bearer {fresh}").parse().unwrap());
    headers.insert(header::ORIGIN, "https://evil.example.org".parse().unwrap());
    let Err(Error::Http(answer)) = connect_with(server, strange).await else { panic!("another origin") };
    assert_eq!(answer.status().as_u16(), 403);
    // As a browser would: in the list of protocols, from a page of ours.
    let mut browser = request(server, &path);
    let list = format!("gpuaas.terminal.v1, token.{fresh}");
    browser.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, list.parse().unwrap());
    browser.headers_mut().insert(header::ORIGIN, server.base.parse().unwrap());
    let mut page = connect_with(server, browser).await.expect("a page of ours");
    // It is closed for its first message, when the token is used up.
    page.send(Message::text("{}")).await.unwrap();
    assert_eq!(close_code(page).await, Some(1000), "no protocol of ours");
    assert_eq!(close_code(connect(server, &id, &fresh).await).await, NOT_ACCEPTED, "{session} was used");

    let metrics = reqwest::get(format!("{}/metrics", server.ops)).await.unwrap().text().await.unwrap();
    let tokens =
        ["used", "unknown", "expired", "other_allocation", "missing"].map(|reason| ("tokens", reason));
    for (what, reason) in
        tokens.into_iter().chain([("connections", "token_in_url"), ("connections", "origin")])
    {
        let counted = format!("terminal_{what}_refused_total{{reason=\"{reason}\"}} ");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&counted));
        assert!(count.is_some_and(|count| count != "0"), "{counted}{count:?}");
    }
    for secret in [&used, &foreign, &late, &fresh] {
        let kept = secret.trim_start_matches("gpterm_");
        assert!(!server.log().contains(kept) && !nodes.log().contains(kept), "a token is in a log");
    }
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn tokens_are_for_whoever_may_enter_and_ten_a_minute() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let (team, eve) = (Team::new(&world).await, world.tenant("eve").await);
    let (ann, bob) = (&team.ann, &team.bob);
    let id = ann.active(slice(1)).await;
    mint(&eve, &id, json!({})).await.refused(404, "not_found");
    let guest = testkit::Tenant { person: eve.person.clone(), project: ann.project.clone() };
    mint(&guest, &id, json!({})).await.refused(404, "not_found");
    team.bob_is("viewer").await;
    mint(bob, &id, json!({})).await.refused(403, "insufficient_permissions");
    // An admin of the project sees the machine, and does not get into it.
    team.bob_is("admin").await;
    mint(bob, &id, json!({})).await.refused(403, "ownership_required");
    let (_, session) = token(ann, &id, json!({})).await;
    team.bob_may_enter(&id).await;
    mint(bob, &id, json!({ "session_id": session })).await.refused(403, "ownership_required");
    mint(ann, &id, json!({ "access": "root" })).await.refused(400, "validation_error");
    // Who may enter has left the project, comes back, and leaves the organization.
    let member = format!("/api/v1/projects/{}/members/{}", ann.project, bob.person.id);
    token(bob, &id, json!({})).await;
    ann.api().delete(&member).await.expect(204);
    mint(bob, &id, json!({})).await.refused(404, "not_found");
    team.bob_is("member").await;
    let (_, session) = token(bob, &id, json!({})).await;
    let org_member = format!("/api/v1/orgs/{}/members/{}", team.org, bob.person.id);
    ann.api().delete(&org_member).await.expect(204);
    for body in [json!({}), json!({ "session_id": session })] {
        mint(bob, &id, body).await.refused(404, "not_found");
    }

    // What the product sets, and tests lift.
    world
        .db
        .sql("DELETE FROM policy_values WHERE key = 'rate_limit.terminal_token_requests_per_minute'")
        .await;
    world.db.sql("SELECT pg_notify('gpuaas_invalidate', '*')").await;
    let machine = eve.active(slice(1)).await;
    let mut refused = 0;
    for _ in 0..11 {
        let answer = mint(&eve, &machine, json!({})).await;
        if answer.status == 429 {
            refused += 1;
            assert_eq!(answer.code(), "rate_limit_exceeded");
        } else {
            answer.expect(201);
        }
    }
    assert_eq!(refused, 1, "of eleven in a minute one is too many");
    eve.release(&machine).await;
    mint(ann, &machine, json!({})).await.refused(404, "not_found");
}

/// Whoever can write to the database cannot move a token to another machine.
#[tokio::test]
async fn a_token_whose_row_was_moved_to_another_machine_opens_neither() {
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let (id, other) = (ann.active(slice(1)).await, ann.active(slice(1)).await);
    let moved = format!("UPDATE terminal_tokens SET allocation_id = '{}'", allocation_uuid(&other));
    let (terminal, _) = token(&ann, &id, json!({})).await;
    let ssh = ann.api().post(&ann.path(&format!("/{id}/ssh-token")), json!({})).await.expect(201);
    world.db.sql(&moved).await;
    assert_eq!(close_code(connect(&world.server, &other, &terminal).await).await, NOT_ACCEPTED);
    let mut request = request(&world.server, &format!("/ws/ssh/{other}"));
    let headers = request.headers_mut();
    headers
        .insert(header::AUTHORIZATION, format!("Bearer {}", ssh["token"].as_str().unwrap()).parse().unwrap());
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, "gpuaas.ssh.v1".parse().unwrap());
    let socket = connect_with(&world.server, request).await.expect("a WebSocket");
    assert_eq!(close_code(socket).await, NOT_ACCEPTED);
    assert!(!nodes.log().contains("a terminal session is started"));
}

fn allocation_uuid(id: &str) -> uuid::Uuid {
    id.split_once('_').unwrap().1.parse().unwrap()
}
