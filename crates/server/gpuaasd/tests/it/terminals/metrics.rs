//! What a gateway says of its terminals at its metrics endpoint.

use serde_json::json;
use testkit::{Server, World, eventually_within};

use super::{
    client::{SOON, Said, Terminal, close_code, connect, token},
    slice,
};

const NOT_ACCEPTED: Option<u16> = Some(4401);

/// The value of a series; zero before it is there.
async fn metric(server: &Server, series: &str) -> f64 {
    let text = reqwest::get(format!("{}/metrics", server.ops)).await.unwrap().text().await.unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().unwrap())
}

async fn eventually_is(server: &Server, series: &str, is: impl Fn(f64) -> bool) {
    let looking = || async { is(metric(server, series).await).then_some(()) };
    eventually_within(SOON, series, looking).await;
}

#[tokio::test]
async fn a_gateway_counts_active_sessions_latencies_bytes_and_who_is_refused() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let server = &world.server;
    assert!(metric(server, "terminal_sessions_active").await < 1.0);

    let (used, session) = token(&ann, &id, json!({})).await;
    let mut terminal = Terminal::attach(server, &id, &used, session.clone(), 0).await.unwrap();
    eventually_is(server, "terminal_sessions_active", |count| count == 1.0).await;
    eventually_is(server, "terminal_token_to_ready_seconds_count", |count| count == 1.0).await;
    assert!(metric(server, "terminal_token_to_ready_seconds_sum").await > 0.0);
    assert!(metric(server, "terminal_recording_stored_bytes_total").await > 0.0, "its first chunk");

    terminal.run("true").await;
    eventually_is(server, "terminal_echo_seconds_count", |count| count >= 1.0).await;
    assert!(metric(server, "terminal_echo_seconds_sum").await > 0.0);
    assert!(metric(server, "terminal_bytes_total{direction=\"in\"}").await >= 10.0);
    let shown = metric(server, "terminal_bytes_total{direction=\"out\"}").await;
    assert!(shown >= terminal.output.len() as f64, "{shown} bytes, {} were shown", terminal.output.len());

    // Who only watches is a client, and no session more.
    let (text, _) = token(&ann, &id, json!({ "session_id": session, "access": "watch" })).await;
    let watching = Terminal::attach(server, &id, &text, session.clone(), 0).await.unwrap();
    eventually_is(server, "terminal_attachments", |count| count == 2.0).await;
    assert_eq!(metric(server, "terminal_sessions_active").await, 1.0);
    let (text, _) = token(&ann, &id, json!({ "session_id": session })).await;
    match Terminal::attach(server, &id, &text, session, 0).await {
        Err(Said::Control(said)) => assert_eq!(said["code"], "writer_attached", "{said}"),
        other => panic!("{:?}", other.map(drop)),
    }
    let refused = "terminal_attachments_refused_total{code=\"writer_attached\"}";
    assert_eq!(metric(server, refused).await, 1.0);

    // A replay is told from a token that never was.
    assert_eq!(close_code(connect(server, &id, &used).await).await, NOT_ACCEPTED);
    let made_up = format!("gpterm_{}", "A".repeat(43));
    for _ in 0..2 {
        assert_eq!(close_code(connect(server, &id, &made_up).await).await, NOT_ACCEPTED);
    }
    assert_eq!(metric(server, "terminal_tokens_refused_total{reason=\"used\"}").await, 1.0);
    assert_eq!(metric(server, "terminal_tokens_refused_total{reason=\"unknown\"}").await, 2.0);

    // One leaves on purpose, the other is gone.
    terminal.control(json!({ "type": "detach" })).await;
    terminal.until_end().await;
    eventually_is(server, "terminal_sessions_active", |count| count == 0.0).await;
    drop(watching);
    eventually_is(server, "terminal_attachments", |count| count == 0.0).await;
    assert_eq!(metric(server, "terminal_token_to_ready_seconds_count").await, 2.0, "who got a terminal");
}

#[tokio::test]
async fn a_gateway_counts_how_long_it_waits_for_the_storage_of_recordings() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let server = &world.server;
    let mut terminal = Terminal::open(server, &ann, &id).await;
    terminal.run("stty -echo").await;
    assert_eq!(metric(server, "terminal_recording_failures_total{reason=\"store\"}").await, 0.0);
    let objects = server.dir.path().join("data/objects");
    std::fs::rename(&objects, server.dir.path().join("data/away")).unwrap();
    std::fs::write(&objects, "").unwrap();
    terminal.type_in("seq 1 400000\n").await;
    assert_eq!(terminal.until_end().await["code"], "recording_unavailable");
    eventually_is(server, "terminal_backpressure_seconds_count{waits_for=\"recording\"}", |count| {
        count >= 1.0
    })
    .await;
    assert!(metric(server, "terminal_backpressure_seconds_sum{waits_for=\"recording\"}").await > 1.0);
    assert_eq!(metric(server, "terminal_recording_failures_total{reason=\"store\"}").await, 1.0);
    eventually_is(server, "terminal_sessions_active", |count| count == 0.0).await;
}
