//! Following notifications as they are made.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use testkit::free_port;

use crate::world::World;

const PATH: &str = "/api/v1/me/notifications/stream";

/// The numbers of the next notifications, until there are so many.
async fn numbers(body: &mut Body, count: usize) -> Vec<i64> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let frame =
            tokio::time::timeout(Duration::from_secs(20), body.frame()).await.expect("a frame in time");
        let bytes = frame.expect("the stream goes on").unwrap().into_data().unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        seen.extend(
            text.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse::<i64>().unwrap()),
        );
    }
    seen
}

#[tokio::test]
async fn a_stream_shows_what_comes_and_goes_on_after_what_was_seen() {
    let world = World::new(free_port()).await;
    world.happens(&world.low_balance()).await;
    let mut fresh = world.stream(world.owner, PATH, None).await;
    let mut resumed = world.stream(world.owner, PATH, Some(0)).await;
    assert_eq!(numbers(&mut resumed, 1).await, [1], "what was missed");
    // Until a stream was asked for its first frame it has not looked; both have begun by now.
    world.happens(&world.depleted()).await;
    assert_eq!(numbers(&mut fresh, 1).await, [2], "only what is new");
    assert_eq!(numbers(&mut resumed, 1).await, [2]);
}
