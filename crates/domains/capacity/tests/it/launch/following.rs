//! Waiting for an allocation and following it.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::world::{Tenant, World, slice};

async fn launched() -> (Arc<World>, String) {
    let world = World::new().await;
    world.region("eu").await;
    world.node("eu", 8).await;
    let id = world.launch(world.tenant, slice(1)).await.id();
    (world, id)
}

/// What a workflow does: the state, and what is told of it.
async fn moves(world: &World, id: &str, from: &str, to: &str) {
    let uuid = uuid::Uuid::try_parse(id.strip_prefix("alloc_").unwrap()).unwrap();
    let over = if to == "failed" { ", finished_at = now()" } else { "" };
    world
        .sql(&format!(
            "UPDATE allocations SET state = '{to}', version = version + 1{over} WHERE id = '{uuid}';
             INSERT INTO allocation_events (allocation_id, org_id, at, kind, from_state, to_state, name, actor_kind,
                 correlation_id)
             SELECT id, org_id, now(), 'state', '{from}', '{to}', 'test', 'node', gen_random_uuid()
             FROM allocations WHERE id = '{uuid}'"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_when_the_state_changes_and_holds_no_connection() {
    let (world, id) = launched().await;
    let started = Instant::now();
    // Many more than there are connections.
    let waiting: Vec<_> = (0..60)
        .map(|_| {
            let (world, path) = (world.clone(), format!("allocations/{id}?wait=20s&state=requested"));
            tokio::spawn(async move { world.get(world.tenant, &path).await })
        })
        .collect();
    testkit::eventually("all wait without a connection", async || {
        let idle = world.test.db.pool_usage()[0].1 == 0;
        let begun = started.elapsed() > Duration::from_millis(100);
        (idle && begun).then_some(())
    })
    .await;
    let calm = world.get(world.tenant, &format!("allocations/{id}")).await;
    assert_eq!(calm.body["state"], "requested", "others are served meanwhile");
    moves(&world, &id, "requested", "provisioning").await;
    for one in waiting {
        let answer = one.await.unwrap();
        assert_eq!(answer.body["state"], "provisioning", "{answer:?}");
    }
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    let short = world.get(world.tenant, &format!("allocations/{id}?wait=1s")).await;
    assert_eq!(short.body["state"], "provisioning", "the time is over");
    for bad in ["wait=31s", "wait=x", "wait=5", "state=odd"] {
        let answer = world.get(world.tenant, &format!("allocations/{id}?{bad}")).await;
        assert_eq!(answer.code(), "validation_error", "{bad}");
    }
}

/// Reads a stream frame by frame.
struct Stream {
    body: Body,
    text: String,
}

impl Stream {
    async fn open(world: &World, id: &str, headers: &[(&str, &str)]) -> Self {
        Self::at(world, world.tenant, &format!("allocations/{id}/stream"), headers).await
    }

    async fn at(world: &World, tenant: Tenant, path: &str, headers: &[(&str, &str)]) -> Self {
        let path = format!("{}/{path}", tenant.project);
        let response: Response<Body> = world.raw(tenant.member, Method::GET, &path, headers, None).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next event that carries data, as (id, event, data); nothing at the end of the stream.
    async fn next(&mut self) -> Option<(i64, String, Value)> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let frame: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    frame
                        .lines()
                        .find_map(|line| line.strip_prefix(name))
                        .map(|value| value.trim().to_owned())
                };
                if let Some(data) = field("data:") {
                    let id = field("id:").map_or(0, |id| id.parse().unwrap());
                    return Some((id, field("event:").unwrap(), serde_json::from_str(&data).unwrap()));
                }
                continue;
            }
            let frame = timeout(Duration::from_secs(20), self.body.frame()).await.expect("a frame in time");
            let frame = frame?.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&frame).unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_what_was_then_what_is_and_can_be_resumed() {
    let (world, id) = launched().await;
    let mut stream = Stream::open(&world, &id, &[]).await;
    let (first, event, data) = stream.next().await.unwrap();
    assert_eq!((event.as_str(), &data["to_state"]), ("allocation", &"requested".into()));
    let started = Instant::now();
    moves(&world, &id, "requested", "provisioning").await;
    let (second, _, data) = stream.next().await.unwrap();
    assert_eq!(data["to_state"], "provisioning");
    assert_eq!((&data["actor_kind"], data.get("actor_id")), (&"system".into(), None), "nodes are not named");
    assert!(second > first);
    assert!(started.elapsed() < Duration::from_secs(4), "woken, not polled: {:?}", started.elapsed());
    drop(stream);

    moves(&world, &id, "provisioning", "failed").await;
    let mut stream = Stream::open(&world, &id, &[("last-event-id", &second.to_string())]).await;
    let (third, _, data) = stream.next().await.unwrap();
    assert_eq!(data["to_state"], "failed", "only what was not seen yet");
    let (_, event, _) = stream.next().await.unwrap();
    assert_eq!(event, "end");
    assert!(stream.next().await.is_none(), "and the stream is over");
    let mut stream = Stream::open(&world, &id, &[("last-event-id", &third.to_string())]).await;
    assert_eq!(stream.next().await.unwrap().1, "end", "who has seen it all is told so");

    let path = format!("{}/allocations/{id}/stream", world.tenant.project);
    let bad = world.raw(world.tenant.member, Method::GET, &path, &[("last-event-id", "x")], None).await;
    assert_eq!(bad.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_is_followed_and_no_other() {
    let (world, first) = launched().await;
    let other = world.another_tenant("second").await;
    let mut stream = Stream::at(&world, world.tenant, "allocations/stream", &[]).await;
    let mut others = Stream::at(&world, other, "allocations/stream", &[]).await;
    let (_, event, data) = stream.next().await.unwrap();
    assert_eq!(
        (event.as_str(), &data["id"], &data["state"]),
        ("allocation", &first.as_str().into(), &"requested".into())
    );
    let second = world.launch(world.tenant, slice(1)).await.id();
    let (_, _, data) = stream.next().await.unwrap();
    assert_eq!((&data["id"], &data["state"]), (&second.as_str().into(), &"requested".into()));
    moves(&world, &first, "requested", "provisioning").await;
    moves(&world, &first, "provisioning", "failed").await;
    let mut last = stream.next().await.unwrap().2;
    if last["state"] == "provisioning" {
        last = stream.next().await.unwrap().2;
    }
    assert_eq!((&last["id"], &last["state"]), (&first.as_str().into(), &"failed".into()));
    // All that the other project hears of is its own.
    let own = world.launch(other, slice(1)).await.id();
    assert_eq!(others.next().await.unwrap().2["id"], own.as_str());
}
