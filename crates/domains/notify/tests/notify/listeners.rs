//! Webhooks whose messages are fetched: by whom, how often, and how long they stay.

use std::time::Duration;

use aws_lc_rs::hmac;
use axum::body::Body;
use chrono::TimeDelta;
use http::Method;
use http_body_util::BodyExt as _;
use notify::{model::delivery::Channel, service::listening::listeners_expire};
use serde_json::{Value, json};
use testkit::free_port;

use crate::{receiver::Receiver, world::World};

/// The path and the secret of a new listener.
async fn listener(world: &World, event_types: Value) -> (String, String) {
    let all = format!("/api/v1/orgs/{}/webhooks", world.org);
    let made = world
        .post(world.owner, &format!("{all}/listeners"), json!({ "event_types": event_types }))
        .await
        .ok();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    assert!(text("name").starts_with("listener ") && made["listens_until"].is_string(), "{made}");
    (format!("{all}/{}", text("id")), text("secret"))
}

/// The next messages, until there are so many.
async fn messages(body: &mut Body, count: usize) -> Vec<Value> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let frame =
            tokio::time::timeout(Duration::from_secs(20), body.frame()).await.expect("a frame in time");
        let bytes = frame.expect("the stream goes on").unwrap().into_data().unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        seen.extend(data.map(|data| serde_json::from_str::<Value>(data).unwrap()));
    }
    seen
}

fn verified(message: &Value, secret: &str) -> bool {
    let headers = message["headers"].as_array().unwrap();
    let signature = headers.iter().find(|pair| pair[0] == "GPUaaS-Signature").unwrap()[1].as_str().unwrap();
    let (time, tag) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signed = format!("{time}.{}", message["body"].as_str().unwrap());
    kernel::hex::encode(hmac::sign(&key, signed.as_bytes()).as_ref()) == tag
}

#[tokio::test]
async fn a_listener_gets_signed_what_a_webhook_gets_and_nothing_is_sent_anywhere() {
    let world = World::new(free_port()).await;
    let receiver = Receiver::start(200).await;
    receiver.registered(&world).await;
    let (path, secret) = listener(&world, json!([])).await;
    let (other, _) = listener(&world, json!(["billing.balance_depleted"])).await;
    world.happens(&world.low_balance()).await;
    assert_eq!(world.send(Channel::Webhook).await, 1, "only that with a URL");

    let mut stream = world.stream(world.owner, &format!("{path}/stream"), None).await;
    let first = messages(&mut stream, 1).await.remove(0);
    assert!(verified(&first, &secret) && !verified(&first, "whsec_other"), "{first}");
    let sent = receiver.received()[0].json();
    let body: Value = serde_json::from_str(first["body"].as_str().unwrap()).unwrap();
    assert_eq!((&body, &first["event_type"]), (&sent, &json!("billing.low_balance_warning")));

    // What comes while somebody listens, and a test by hand.
    world.happens(&world.depleted()).await;
    // Messages of one moment have no order.
    world.passes(TimeDelta::seconds(1));
    world.call(world.owner, Method::POST, &format!("{path}/test"), None).await.ok();
    let next: Vec<Value> = messages(&mut stream, 2).await.iter().map(|m| m["event_type"].clone()).collect();
    assert_eq!(next, ["billing.balance_depleted", "webhook.test"]);
    let queued = world.get(world.owner, &format!("{other}/deliveries")).await;
    assert_eq!(queued["items"].as_array().unwrap().len(), 1);
    // A webhook with a URL is not fetched from, and a listener gets none.
    let hooks = world.get(world.owner, &format!("/api/v1/orgs/{}/webhooks", world.org)).await;
    let plain =
        hooks["items"].as_array().unwrap().iter().find(|hook| hook["listens_until"].is_null()).unwrap();
    let path_of_plain =
        format!("/api/v1/orgs/{}/webhooks/{}/stream", world.org, plain["id"].as_str().unwrap());
    let refused = world.call(world.owner, Method::GET, &path_of_plain, None).await.refused(409);
    assert_eq!(refused["code"], "invalid_transition");
    let moved = json!({ "url": receiver.url });
    world.call(world.owner, Method::PATCH, &path, Some(moved)).await.refused(400);
}

#[tokio::test]
async fn a_message_that_the_connection_lost_is_streamed_again_and_one_that_was_followed_is_not() {
    let world = World::new(free_port()).await;
    let (path, _) = listener(&world, json!([])).await;
    let stream = format!("{path}/stream");
    world.happens(&world.low_balance()).await;
    let mut broken = world.stream(world.owner, &stream, None).await;
    let first = messages(&mut broken, 1).await.remove(0);
    drop(broken);
    let mut again = world.stream(world.owner, &stream, None).await;
    assert_eq!(messages(&mut again, 1).await[0]["id"], first["id"]);
    world.happens(&world.depleted()).await;
    assert_eq!(messages(&mut again, 1).await[0]["event_type"], "billing.balance_depleted");
    drop(again);
    let mut last = world.stream(world.owner, &stream, None).await;
    let left = messages(&mut last, 1).await;
    assert_eq!(left[0]["event_type"], "billing.balance_depleted", "the first was delivered");
}

#[tokio::test]
async fn a_listener_that_nobody_listens_to_gets_nothing_more_and_is_deleted() {
    let world = World::new(free_port()).await;
    let (kept, _) = listener(&world, json!([])).await;
    let (left, _) = listener(&world, json!([])).await;
    world.passes(TimeDelta::seconds(90));
    // Looking at the stream keeps one of them.
    let mut stream = world.stream(world.owner, &format!("{kept}/stream"), None).await;
    world.call(world.owner, Method::POST, &format!("{kept}/test"), None).await.ok();
    messages(&mut stream, 1).await;
    world.passes(TimeDelta::seconds(60));
    world.happens(&world.low_balance()).await;
    let waiting = "SELECT count(*) FROM deliveries WHERE event_type = 'billing.low_balance_warning' AND channel = 'webhook'";
    assert_eq!(world.count(waiting).await, 1, "only for the one that is listened to");
    listeners_expire(&world.notify).await.unwrap();
    world.call(world.owner, Method::GET, &left, None).await.refused(404);
    world.get(world.owner, &kept).await;
    let expired = "SELECT count(*) FROM audit_logs WHERE action = 'webhook.expire'";
    assert_eq!(world.count(expired).await, 1);
}

#[tokio::test]
async fn a_listener_is_for_those_who_manage_webhooks() {
    let world = World::new(free_port()).await;
    let (path, _) = listener(&world, json!([])).await;
    let viewer = world.member("viewer", "viewer@example.org").await;
    let (_, stranger) = world.second_org().await;
    let create = format!("/api/v1/orgs/{}/webhooks/listeners", world.org);
    for (user, status) in [(viewer, 403), (stranger, 404)] {
        world.post(user, &create, json!({})).await.refused(status);
        world.call(user, Method::GET, &format!("{path}/stream"), None).await.refused(status);
    }
    world.post(world.owner, &create, json!({ "event_types": ["nothing"] })).await.refused(400);
}
