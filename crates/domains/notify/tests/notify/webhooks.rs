//! Webhooks, with real receivers.

use aws_lc_rs::hmac;
use chrono::TimeDelta;
use http::Method;
use kernel::ids::WebhookId;
use notify::model::delivery::Channel;
use serde_json::json;
use testkit::free_port;
use tokio_util::sync::CancellationToken;

use crate::{
    receiver::{Received, Receiver},
    world::World,
};

/// What a receiver does: takes the header apart and computes the same.
fn verified(received: &Received, secret: &str) -> bool {
    let header = received.signature();
    let mut parts = header.split(',');
    let time = parts.next().unwrap().strip_prefix("t=").unwrap().to_owned();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signed = [time.as_bytes(), b".", &received.body].concat();
    let expected = kernel::hex::encode(hmac::sign(&key, &signed).as_ref());
    parts.any(|part| part == format!("v1={expected}"))
}

#[tokio::test]
async fn an_event_arrives_signed_at_those_who_want_it() {
    let world = World::new(free_port()).await;
    let (all, some) = (Receiver::start(200).await, Receiver::start(204).await);
    let (path, secret) = all.registered(&world).await;
    some.registered_for(&world, json!(["billing.balance_depleted"])).await;
    world.happens(&world.low_balance()).await;
    assert_eq!(world.send(Channel::Webhook).await, 1);
    let received = all.received();
    let body = received[0].json();
    assert_eq!(body["type"], "billing.low_balance_warning");
    assert_eq!(body["data"]["balance_minor"], 450);
    assert!(body["id"].as_str().unwrap().starts_with("evt_"));
    assert!(verified(&received[0], &secret));
    assert!(!verified(&received[0], "whsec_other"));
    let time = received[0].signature();
    assert!(time.starts_with(&format!("t={},", world.now().timestamp())));
    assert!(some.received().is_empty());
    world.happens(&world.depleted()).await;
    assert_eq!(world.send(Channel::Webhook).await, 2);
    assert_eq!(some.received().len(), 1);
    let sent = world.get(world.owner, &format!("{path}/deliveries")).await;
    let states: Vec<_> = sent["items"].as_array().unwrap().iter().map(|d| d["state"].clone()).collect();
    assert_eq!(states, ["sent", "sent"]);
}

#[tokio::test]
async fn while_a_secret_is_replaced_both_are_good() {
    let world = World::new(free_port()).await;
    let receiver = Receiver::start(200).await;
    let (path, old) = receiver.registered(&world).await;
    let rotated = world.call(world.owner, Method::POST, &format!("{path}/rotate-secret"), None).await.ok();
    let new = rotated["secret"].as_str().unwrap().to_owned();
    assert_ne!(old, new);
    let test = format!("{path}/test");
    world.call(world.owner, Method::POST, &test, None).await.ok();
    world.send(Channel::Webhook).await;
    world.passes(TimeDelta::hours(25));
    world.call(world.owner, Method::POST, &test, None).await.ok();
    world.send(Channel::Webhook).await;
    let received = receiver.received();
    assert_eq!(received[0].json()["type"], "webhook.test");
    assert!(verified(&received[0], &old) && verified(&received[0], &new));
    assert!(!verified(&received[1], &old) && verified(&received[1], &new));
    // Nobody reads a secret again, and the database holds none that could be read.
    let shown = world.get(world.owner, &path).await.to_string();
    assert!(!shown.contains("whsec_") && !shown.contains("\"secret\""));
    let clear = "SELECT count(*) FROM webhooks WHERE position('whsec_'::bytea IN secret) > 0";
    assert_eq!(world.count(clear).await, 0);
}

#[tokio::test]
async fn a_receiver_that_fails_is_tried_again_and_one_that_redirects_is_not_followed() {
    let world = World::new(free_port()).await;
    let receiver = Receiver::start(500).await;
    let (path, _) = receiver.registered(&world).await;
    world.happens(&world.low_balance()).await;
    world.send(Channel::Webhook).await;
    receiver.answers(307);
    world.goes_on(Channel::Webhook, 1, TimeDelta::minutes(1)).await;
    let sent = world.get(world.owner, &format!("{path}/deliveries")).await;
    assert!(sent["items"][0]["last_error"].as_str().unwrap().contains("redirects are not followed"));
    assert_eq!(receiver.received().len(), 2, "nobody came to where it pointed");
    assert!(world.get(world.owner, &path).await["failing_since"].is_string());
    receiver.answers(200);
    world.goes_on(Channel::Webhook, 2, TimeDelta::minutes(2)).await;
    let ids: Vec<_> = receiver.received().iter().map(|one| one.json()["id"].clone()).collect();
    assert_eq!(ids, vec![ids[0].clone(); 3], "the same event each time");
    assert!(world.get(world.owner, &path).await.get("failing_since").is_none());
}

#[tokio::test]
async fn a_webhook_that_fails_for_a_day_is_disabled_and_its_people_are_told() {
    let world = World::new(free_port()).await;
    let receiver = Receiver::start(503).await;
    let (path, _) = receiver.registered(&world).await;
    world.happens(&world.low_balance()).await;
    world.goes_on(Channel::Webhook, 30, TimeDelta::hours(1)).await;
    // What happens next is not kept waiting for it, and is its last try.
    if world.get(world.owner, &path).await["state"] == "active" {
        world.happens(&world.depleted()).await;
        world.send(Channel::Webhook).await;
    }
    let webhook = world.get(world.owner, &path).await;
    assert_eq!(webhook["state"], "disabled");
    let told = world.notifications(world.owner).await;
    assert!(told.iter().any(|one| one["kind"] == "webhook_disabled"), "{told:?}");
    assert_eq!(
        world.count("SELECT count(*) FROM deliveries WHERE channel = 'webhook' AND state = 'queued'").await,
        0
    );
    let before = receiver.received().len();
    world.happens(&world.depleted()).await;
    assert_eq!(world.send(Channel::Webhook).await, 0);
    world.call(world.owner, Method::POST, &format!("{path}/test"), None).await.refused(409);
    // Enabled again, it begins anew.
    receiver.answers(200);
    world.call(world.owner, Method::PATCH, &path, Some(json!({ "enabled": true }))).await.ok();
    world.happens(&world.depleted()).await;
    world.send(Channel::Webhook).await;
    assert_eq!(receiver.received().len(), before + 1);
}

#[tokio::test]
async fn one_receiver_that_hangs_keeps_no_other_waiting() {
    let world = World::new(free_port()).await;
    // Takes connections and never answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let all = format!("/api/v1/orgs/{}/webhooks", world.org);
    world.post(world.owner, &all, json!({ "name": "hangs", "url": url })).await.ok();
    let receiver = Receiver::start(200).await;
    receiver.registered(&world).await;
    for _ in 0..12 {
        world.happens(&world.low_balance()).await;
    }
    let stop = CancellationToken::new();
    let lanes = tokio::spawn(notify::jobs::run(world.relay.clone(), stop.clone()));
    // The client gives a receiver ten seconds; those who answer are not held up by that.
    let limit = std::time::Duration::from_secs(8);
    testkit::eventually_within(limit, "the other receives everything", || async {
        (receiver.received().len() == 12).then_some(())
    })
    .await;
    // A stop gives back what hangs: another process sends it at once, not when the lease is over.
    let hanging = "SELECT count(*) FROM deliveries WHERE state = 'queued' AND taken_until IS NOT NULL";
    assert!(world.count(hanging).await > 0);
    stop.cancel();
    tokio::time::timeout(std::time::Duration::from_secs(9), lanes).await.expect("it stops").unwrap();
    assert_eq!(world.count(hanging).await, 0);
    assert_eq!(
        notify::jobs::send_due(&world.relay, Channel::Webhook).await.unwrap(),
        2,
        "nobody waits for the lease"
    );
}

/// An organization fills its queue before another's event happens: the other's message goes out in the next turn.
#[tokio::test]
async fn a_long_queue_of_one_organization_delays_no_other() {
    let world = World::new(free_port()).await;
    let (flooded, other) = (Receiver::start(200).await, Receiver::start(200).await);
    let (path, _) = flooded.registered(&world).await;
    let id: WebhookId = path.rsplit('/').next().unwrap().parse().unwrap();
    // Longer due than what comes next, and more than any turn could look at.
    world
        .sql(&format!(
            "INSERT INTO deliveries (id, channel, state, event_id, event_type, org_id, webhook_id, content,
                 next_attempt_at, queued_at, created_at)
             SELECT gen_random_uuid(), 'webhook', 'queued', gen_random_uuid(), 'billing.low_balance_warning',
                 '{}', '{}', '{{}}', '2026-03-01T11:00:00Z', '2026-03-01T11:00:00Z', '2026-03-01T11:00:00Z'
             FROM generate_series(1, 30000)",
            world.org.uuid(),
            id.uuid()
        ))
        .await;
    let (org, owner) = world.second_org().await;
    let all = format!("/api/v1/orgs/{org}/webhooks");
    world.post(owner, &all, json!({ "name": "second", "url": other.url })).await.ok();
    world.happens_in(org, &world.low_balance()).await;
    let sent = notify::jobs::send_due(&world.relay, Channel::Webhook).await.unwrap();
    assert_eq!(other.received().len(), 1, "of {sent} messages that were sent in one turn");
    assert!(flooded.received().len() <= 2, "one webhook has a share of the lane");
}

#[tokio::test]
async fn the_queue_of_an_organization_is_bounded_and_what_is_dropped_is_counted() {
    let world = World::new(free_port()).await;
    world.test.set_global_policy("notification.queued_webhook_messages", "3").await;
    let receiver = Receiver::start(200).await;
    let (path, _) = receiver.registered(&world).await;
    for _ in 0..5 {
        world.happens(&world.low_balance()).await;
    }
    assert_eq!(world.count("SELECT count(*) FROM deliveries WHERE channel = 'webhook'").await, 3);
    let webhook = world.get(world.owner, &path).await;
    assert_eq!(webhook["dropped_events"], 2, "{webhook}");
    assert!(webhook["last_dropped_at"].is_string());
    // A test event finds no way around the bound.
    world.call(world.owner, Method::POST, &format!("{path}/test"), None).await.refused(429);
    // When the queue is shorter again, events are queued again.
    world.send(Channel::Webhook).await;
    world.happens(&world.depleted()).await;
    world.send(Channel::Webhook).await;
    assert_eq!(receiver.received().len(), 4);
}

#[tokio::test]
async fn webhooks_belong_to_those_who_run_the_organization() {
    let world = World::new(free_port()).await;
    let receiver = Receiver::start(200).await;
    let (path, _) = receiver.registered(&world).await;
    let member = world.member("member", "member@example.org").await;
    world.call(member, Method::GET, &path, None).await.refused(403);
    let (other_org, other) = world.second_org().await;
    world.call(other, Method::GET, &path, None).await.refused(404);
    let id = path.rsplit('/').next().unwrap();
    let theirs = format!("/api/v1/orgs/{other_org}/webhooks/{id}");
    for (method, tail) in
        [(Method::GET, ""), (Method::DELETE, ""), (Method::POST, "/test"), (Method::GET, "/deliveries")]
    {
        world.call(other, method, &format!("{theirs}{tail}"), None).await.refused(404);
    }
    let stale = world.call(world.owner, Method::PATCH, &path, Some(json!({ "name": "renamed" }))).await.ok();
    assert_eq!(stale["version"], 2);
    world.call(world.owner, Method::DELETE, &path, None).await.ok();
    assert_eq!(world.count("SELECT count(*) FROM webhooks").await, 0);
}
