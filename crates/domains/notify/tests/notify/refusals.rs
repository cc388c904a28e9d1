//! What a tenant could reach through us, and does not.

use notify::model::delivery::Channel;
use serde_json::json;
use testkit::free_port;

use crate::{receiver::Receiver, world::World};

#[tokio::test]
async fn no_webhook_is_made_that_leads_into_our_own_network() {
    let world = World::with(free_port(), false).await;
    let path = format!("/api/v1/orgs/{}/webhooks", world.org);
    for url in [
        "http://example.org/",
        "https://localhost/",
        "https://node.LOCALHOST./",
        "https://127.0.0.1:5432/",
        "https://0x7f000001/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:a9fe:a9fe]/latest/meta-data",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/",
        "https://[fd00::1]/",
        "https://user:password@example.org/",
        "file:///etc/passwd",
    ] {
        let error = world.post(world.owner, &path, json!({ "name": "x", "url": url })).await.refused(400);
        assert_eq!(error["details"]["fields"][0]["field"], "url", "{url}");
    }
    let body = json!({ "name": "x", "url": "https://8.8.8.8/", "event_types": ["nodes.offline"] });
    let error = world.post(world.owner, &path, body).await.refused(400);
    assert_eq!(error["details"]["fields"][0]["field"], "event_types[0]");
    assert_eq!(world.count("SELECT count(*) FROM webhooks").await, 0);
}

/// A name that led elsewhere when the webhook was made leads to this machine when it is used.
#[tokio::test]
async fn a_name_is_judged_by_what_it_resolves_to_when_it_is_used() {
    let world = World::with(free_port(), false).await;
    let receiver = Receiver::start(200).await;
    let path = format!("/api/v1/orgs/{}/webhooks", world.org);
    world.post(world.owner, &path, json!({ "name": "x", "url": "https://8.8.8.8/" })).await.ok();
    let port = receiver.url.split(':').nth(2).unwrap().split('/').next().unwrap();
    for url in [format!("https://localhost:{port}/"), format!("https://127.0.0.1:{port}/")] {
        world.sql(&format!("UPDATE webhooks SET url = '{url}'")).await;
        world.happens(&world.low_balance()).await;
        assert_eq!(world.send(Channel::Webhook).await, 1);
        let refused = "SELECT count(*) FROM deliveries WHERE channel = 'webhook' AND last_error LIKE '%private or reserved%'";
        assert_eq!(world.count(refused).await, 1, "{url}");
        world.sql("DELETE FROM deliveries").await;
    }
    assert!(receiver.received().is_empty());
}
