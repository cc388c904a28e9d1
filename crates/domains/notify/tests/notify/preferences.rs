//! People choose how they are told.

use http::Method;
use notify::model::delivery::Channel;
use serde_json::json;
use testkit::MailServer;

use crate::world::World;

const PATH: &str = "/api/v1/me/notification-preferences";

#[tokio::test]
async fn what_was_switched_off_is_not_sent_and_the_rest_is() {
    let mail = MailServer::up().await;
    let world = World::new(mail.port).await;
    let quiet = world.member("admin", "quiet@example.org").await;
    let choices = json!({ "items": [{ "kind": "low_balance", "email": false }] });
    world.call(quiet, Method::PUT, PATH, Some(choices)).await.ok();
    let hidden = json!({ "items": [{ "kind": "low_balance", "in_app": false }] });
    world.call(world.owner, Method::PUT, PATH, Some(hidden)).await.ok();
    world.happens(&world.low_balance()).await;
    world.send(Channel::Mail).await;
    let to: Vec<_> = mail.messages().iter().map(|message| message["to"].clone()).collect();
    assert_eq!(to, [json!(["owner@example.org"])]);
    assert_eq!(world.notifications(quiet).await.len(), 1);
    assert!(world.notifications(world.owner).await.is_empty());
}

#[tokio::test]
async fn that_the_balance_is_used_up_cannot_be_hidden() {
    let world = World::new(testkit::free_port()).await;
    let body = json!({ "items": [{ "kind": "balance_depleted", "in_app": false }] });
    let error = world.call(world.owner, Method::PUT, PATH, Some(body)).await.refused(400);
    assert_eq!(error["details"]["fields"][0]["field"], "items[0].in_app");
    let body = json!({ "items": [{ "kind": "balance_depleted", "email": false }] });
    let now = world.call(world.owner, Method::PUT, PATH, Some(body)).await.ok();
    let items = now["items"].as_array().unwrap();
    let depleted = items.iter().find(|item| item["kind"] == "balance_depleted").unwrap();
    assert_eq!(
        (&depleted["in_app"], &depleted["in_app_fixed"], &depleted["email"]),
        (&json!(true), &json!(true), &json!(false))
    );
    assert_eq!(world.get(world.owner, PATH).await, now);
    world.happens(&world.depleted()).await;
    assert_eq!(world.notifications(world.owner).await.len(), 1);
    assert_eq!(world.count("SELECT count(*) FROM deliveries").await, 0);
}

#[tokio::test]
async fn an_unknown_kind_is_named() {
    let world = World::new(testkit::free_port()).await;
    let body = json!({ "items": [{ "kind": "weather", "email": false }] });
    let error = world.call(world.owner, Method::PUT, PATH, Some(body)).await.refused(400);
    assert_eq!(error["details"]["fields"][0]["field"], "items[0].kind");
}
