//! Streams of a tunnel whose certificate was replaced and has expired: open until somebody takes the node's trust back.

use std::time::Duration;

use chrono::TimeDelta;
use futures_util::StreamExt as _;
use kernel::Ambient;
use serde_json::{Value, json};
use testkit::{Machine, World, eventually_within};
use tokio_tungstenite::tungstenite::{Message, http::header};

use crate::{
    agent_trust::{certificates, confirmed, give_certificate, trust_list},
    terminals::client::{LATER, SOON, Socket, connect_with, request},
};

const AUTHORITIES: &str = "/api/v1/platform/trust/authorities";
/// Of the first certificate.
const LIFE: i64 = 45;

/// Follows the log of the agent; also what was said while the stream began.
async fn follow(world: &World, machine: &Machine) -> Socket {
    let path = format!("/api/v1/platform/nodes/{}/log-token", machine.id());
    let made = world.admin.post(&path, json!({})).await.expect(201);
    let mut request = request(&world.server, made["url"].as_str().unwrap());
    let headers = request.headers_mut();
    let token = format!("Bearer {}", made["token"].as_str().unwrap());
    headers.insert(header::AUTHORIZATION, token.parse().unwrap());
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, "gpuaas.node-logs.v1".parse().unwrap());
    let mut socket = connect_with(&world.server, request).await.expect("a WebSocket");
    loop {
        let said = next(&mut socket).await.expect("the log is live");
        match said["type"].as_str() {
            Some("live") => return socket,
            Some("lines") => {}
            _ => panic!("{said}"),
        }
    }
}

/// The next message; none at the end.
async fn next(socket: &mut Socket) -> Option<Value> {
    loop {
        match tokio::time::timeout(SOON, socket.next()).await.expect("something is said")? {
            Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
            Ok(Message::Close(_)) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// Until the agent has logged that it dialled a gateway, which the stream shows.
async fn shows_new_tunnel(socket: &mut Socket) {
    let is_it =
        |line: &Value| line["message"].as_str().is_some_and(|text| text.contains("connected to the gateway"));
    let shown = async {
        loop {
            let said = next(socket).await.expect("the stream is open");
            if said["lines"].as_array().unwrap_or_else(|| panic!("{said}")).iter().any(is_it) {
                return;
            }
        }
    };
    tokio::time::timeout(LATER, shown).await.expect("a new tunnel");
}

/// Lines may come first.
async fn is_cut_off(socket: &mut Socket) {
    let ended = async {
        let mut last = Value::Null;
        while let Some(said) = next(socket).await {
            last = said;
        }
        last
    };
    let last = tokio::time::timeout(LATER, ended).await.expect("an end");
    assert_eq!((&last["code"], &last["retryable"]), (&json!("tunnel_lost"), &json!(true)), "{last}");
}

/// A stream through a tunnel that is the node's so many-th: the gateway has seen that the one before drains.
async fn follow_through(world: &World, machine: &Machine, number: u32) -> Socket {
    eventually_within(LATER, "a new tunnel", || async {
        let socket = follow(world, machine).await;
        let metrics = reqwest::get(format!("{}/metrics", world.server.ops)).await.ok()?.text().await.ok()?;
        let dialled = metrics.lines().find_map(|line| line.strip_prefix("node_tunnels_total "))?;
        (dialled.trim().parse::<u32>().ok()? == number).then_some(socket)
    })
    .await
}

/// The node gets a new certificate.
async fn rekey(world: &World, machine: &Machine) -> Value {
    let before = certificates(world, machine).await[0]["serial"].clone();
    world.db.sql("UPDATE nodes SET rekey_since = clock_timestamp()").await;
    eventually_within(LATER, "a new certificate is used", || async {
        let newest = certificates(world, machine).await.into_iter().next()?;
        let used =
            "SELECT count(*) FROM node_certificates WHERE revoked_at IS NULL AND first_used_at IS NOT NULL";
        (newest["serial"] != before && world.count(used).await == 1).then_some(newest)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_outlives_the_certificate_of_its_tunnel_and_ends_with_the_trust_in_its_node() {
    let world = World::start().await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    let mut machine = world.joined_machine("gpu-01").await;
    give_certificate(&world, &machine, 0, LIFE).await;
    let expired = Ambient::system().now() + TimeDelta::seconds(LIFE);
    machine.agent.start();
    world.awaits_approval(&machine).await;
    let mut first = follow(&world, &machine).await;

    // The node has a certificate of another authority, and the one of the tunnel has expired.
    let old = trust_list(&world, "authorities").await[0]["id"].clone();
    let staged = world.admin.post(AUTHORITIES, json!({})).await.expect(201)["id"].clone();
    confirmed(&world, "authorities", |authority| authority["id"] == staged).await;
    let step = |id: &Value, step: &str| format!("{AUTHORITIES}/{}/{step}", id.as_str().unwrap());
    world.admin.post(&step(&staged, "activate"), json!({})).await.expect(200);
    assert_eq!(rekey(&world, &machine).await["authority_id"], staged);
    eventually_within(Duration::from_secs(90), "the first certificate has expired", || async {
        (Ambient::system().now() > expired + TimeDelta::seconds(3)).then_some(())
    })
    .await;

    // New streams need a new tunnel; the old one is open still.
    let mut second = follow_through(&world, &machine, 2).await;
    shows_new_tunnel(&mut first).await;

    // Nobody trusts what the old authority has signed any more. What the new one has signed goes on.
    let revoke = json!({ "force": true, "reason": "its key is known" });
    world.admin.post(&step(&old, "revoke"), revoke).await.expect(200);
    is_cut_off(&mut first).await;

    // The second tunnel drains too, and ends when the node's own certificate is taken back.
    rekey(&world, &machine).await;
    let mut third = follow_through(&world, &machine, 3).await;
    shows_new_tunnel(&mut second).await;
    let path = format!("/api/v1/platform/nodes/{}/certificates/revoke", machine.id());
    world.admin.post(&path, json!({ "reason": "stolen" })).await.expect(200);
    is_cut_off(&mut second).await;
    is_cut_off(&mut third).await;
}
