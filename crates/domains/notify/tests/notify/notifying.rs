//! Who hears of what, once.

use events::{
    billing::{AdjustmentKind, AdjustmentWaiting, LowBalanceWarning},
    capacity::AllocationFailed,
    fleet::NodeOffline,
};
use http::Method;
use kernel::{
    Event as _,
    ids::{AllocationId, UserId},
};
use notify::{
    model::{delivery::Channel, events::BillingEvent},
    service::notifying::event_notify,
};
use pg::Roles;
use serde_json::json;
use testkit::free_port;
use uuid::Uuid;

use crate::world::World;
use identity::api::PlatformRole;

#[tokio::test]
async fn owners_and_admins_hear_of_the_balance_and_nobody_else_does() {
    let world = World::new(free_port()).await;
    let admin = world.member("admin", "admin@example.org").await;
    let member = world.member("member", "member@example.org").await;
    let stranger = world.person("stranger", Some("stranger@example.org")).await;
    world.happens(&world.low_balance()).await;
    for user in [world.owner, admin] {
        let told = world.notifications(user).await;
        assert_eq!(told.len(), 1);
        assert_eq!(
            (told[0]["kind"].as_str(), told[0]["severity"].as_str()),
            (Some("low_balance"), Some("warning"))
        );
        assert!(told[0]["text"].as_str().unwrap().contains("4.50 USD"), "{told:?}");
        assert_eq!(told[0]["org_id"], world.org.to_string());
    }
    for user in [member, stranger] {
        assert!(world.notifications(user).await.is_empty());
    }
}

#[tokio::test]
async fn an_event_that_is_delivered_again_tells_nobody_again() {
    let world = World::new(free_port()).await;
    world.happens(&world.low_balance()).await;
    // As if the consumer's memory had been lost: the event is delivered anew and handled anew.
    world.sql("DELETE FROM inbox_records").await;
    world.sql("UPDATE outbox_events SET published_at = NULL").await;
    let envelope = kernel::event::Envelope {
        event_id: sqlx::query_scalar("SELECT event_id FROM outbox_events")
            .fetch_one(&mut world.test.conn(Roles::Admin).await)
            .await
            .unwrap(),
        event_type: LowBalanceWarning::TYPE.to_owned(),
        version: 1,
        occurred_at: world.now(),
        correlation_id: Uuid::from_u128(1),
        traceparent: None,
        org_id: Some(world.org.uuid()),
        project_id: None,
        payload: serde_json::to_value(world.low_balance()).unwrap(),
    };
    for _ in 0..3 {
        let origin = pg::Origin::internal(kernel::CorrelationId(Uuid::from_u128(2)));
        let mut tx = world.test.db.write(pg::Permit::system("test", origin), "test.again").await.unwrap();
        let event = BillingEvent::LowBalanceWarning(world.low_balance());
        event_notify(&world.notify, &mut tx, &event, &envelope).await.unwrap();
        tx.commit(None).await.unwrap();
    }
    assert_eq!(world.count("SELECT count(*) FROM notifications").await, 1);
    assert_eq!(world.count("SELECT count(*) FROM deliveries WHERE channel = 'mail'").await, 1);
    assert_eq!(world.count("SELECT last_seq FROM notification_people").await, 1);
}

#[tokio::test]
async fn a_failed_launch_is_told_to_whoever_launched_it() {
    let world = World::new(free_port()).await;
    let creator = world.member("member", "creator@example.org").await;
    let failed = |creator_id: Option<UserId>| AllocationFailed {
        allocation_id: AllocationId::from(Uuid::from_u128(5)),
        project_id: Uuid::from_u128(6).into(),
        group_id: None,
        failure_code: None,
        reason: "the machine did not come up".to_owned(),
        creator_id,
    };
    world.happens(&failed(Some(creator))).await;
    let told = world.notifications(creator).await;
    assert_eq!(told[0]["kind"], "provisioning_failed");
    assert_eq!(told[0]["resource_id"], AllocationId::from(Uuid::from_u128(5)).to_string());
    assert!(world.notifications(world.owner).await.is_empty());
    // Of a launch by a machine, those who run the organization hear.
    world.happens(&failed(None)).await;
    assert_eq!(world.notifications(world.owner).await.len(), 1);
    assert_eq!(world.notifications(creator).await.len(), 1);
}

#[tokio::test]
async fn nodes_concern_administrators_and_operators_of_the_platform() {
    let world = World::new(free_port()).await;
    let ops = world.platform(PlatformRole::PlatformOps, "ops@example.org").await;
    let auditor = world.platform(PlatformRole::PlatformAuditor, "auditor@example.org").await;
    let node_id = Uuid::from_u128(9).into();
    let reason = "three reports are missing".to_owned();
    world.happens(&NodeOffline { node_id, region: "fsn-1".to_owned(), reason }).await;
    assert_eq!(world.notifications(ops).await[0]["kind"], "node_offline");
    for user in [auditor, world.owner] {
        assert!(world.notifications(user).await.is_empty());
    }
    assert_eq!(world.count("SELECT count(*) FROM deliveries WHERE channel = 'webhook'").await, 0);
}

#[tokio::test]
async fn money_that_waits_concerns_those_who_may_approve_it_and_not_who_proposed_it() {
    let world = World::new(free_port()).await;
    let [clerk, second] = [
        world.platform(PlatformRole::PlatformAdmin, "clerk@example.org").await,
        world.platform(PlatformRole::PlatformAdmin, "second@example.org").await,
    ];
    let ops = world.platform(PlatformRole::PlatformOps, "ops@example.org").await;
    let hook = json!({ "name": "all", "url": "http://127.0.0.1:9/all" });
    world
        .call(world.owner, Method::POST, &format!("/api/v1/orgs/{}/webhooks", world.org), Some(hook))
        .await
        .ok();
    let adjustment_id = Uuid::from_u128(4).into();
    let waiting = |proposed_by| AdjustmentWaiting {
        adjustment_id,
        org_id: world.org,
        allocation_id: None,
        kind: AdjustmentKind::Credit,
        amount_minor: 12_345,
        currency: "USD".to_owned(),
        reason: "welcome".to_owned(),
        proposed_by,
    };
    world.happens(&waiting(Some(clerk))).await;
    let told = world.notifications(second).await;
    assert_eq!((told.len(), &told[0]["kind"]), (1, &json!("adjustment_waiting")));
    let text = told[0]["text"].as_str().unwrap();
    assert!(
        text.contains("123.45 USD") && text.contains(&format!("adjustments show {adjustment_id}")),
        "{text}"
    );
    for user in [clerk, ops, world.owner] {
        assert!(world.notifications(user).await.is_empty());
    }
    assert_eq!(world.count("SELECT count(*) FROM deliveries WHERE channel = 'mail'").await, 1);
    assert_eq!(
        world.count("SELECT count(*) FROM deliveries WHERE channel = 'webhook'").await,
        0,
        "the platform's own"
    );
    // What the product proposed is for anybody who may decide.
    world.happens(&waiting(None)).await;
    assert_eq!((world.notifications(clerk).await.len(), world.notifications(second).await.len()), (1, 2));
}

#[tokio::test]
async fn an_organization_that_does_not_want_warnings_gets_none() {
    let world = World::new(free_port()).await;
    world.test.set_global_policy("notification.low_balance_enabled", "false").await;
    world.happens(&world.low_balance()).await;
    assert!(world.notifications(world.owner).await.is_empty());
    world.happens(&world.depleted()).await;
    assert_eq!(world.notifications(world.owner).await.len(), 1);
    assert_eq!(world.send(Channel::Webhook).await, 0);
}

#[tokio::test]
async fn what_was_read_stays_read_and_only_its_person_can_read_it() {
    let world = World::new(free_port()).await;
    let admin = world.member("admin", "admin@example.org").await;
    world.happens(&world.low_balance()).await;
    world.happens(&world.depleted()).await;
    let told = world.notifications(world.owner).await;
    assert_eq!(
        told.iter().map(|one| one["seq"].as_i64().unwrap()).collect::<Vec<_>>(),
        [2, 1],
        "newest first"
    );
    let path = format!("/api/v1/me/notifications/{}/read", told[1]["id"].as_str().unwrap());
    world.call(admin, Method::POST, &path, None).await.refused(404);
    world.call(world.owner, Method::POST, &path, None).await.ok();
    let unread = world.get(world.owner, "/api/v1/me/notifications?unread=true").await;
    assert_eq!(unread["items"].as_array().unwrap().len(), 1);
    // Only up to what was seen.
    let read = world.post(admin, "/api/v1/me/notifications/read", json!({ "up_to_seq": 1 })).await.ok();
    assert_eq!(read["count"], 1);
    let read = world.post(admin, "/api/v1/me/notifications/read", json!({})).await.ok();
    assert_eq!(read["count"], 1);
    let page = world.get(admin, "/api/v1/me/notifications?page_size=1").await;
    let next =
        format!("/api/v1/me/notifications?page_size=1&cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(world.get(admin, &next).await["items"][0]["seq"], 1);
}

#[tokio::test]
async fn the_database_shows_nobody_the_notifications_and_messages_of_others() {
    let world = World::new(free_port()).await;
    let other = world.person("other", None).await;
    world.happens(&world.low_balance()).await;
    let mut app = world.test.conn(Roles::App).await;
    for (person, seen) in [(world.owner, 1_i64), (other, 0)] {
        sqlx::query("SELECT set_config('app.principal_id', $1, false)")
            .bind(person.uuid().to_string())
            .execute(&mut app)
            .await
            .unwrap();
        let count: i64 =
            sqlx::query_scalar("SELECT count(*) FROM notifications").fetch_one(&mut app).await.unwrap();
        assert_eq!(count, seen);
        let people: i64 =
            sqlx::query_scalar("SELECT count(*) FROM notification_people").fetch_one(&mut app).await.unwrap();
        assert_eq!(people, seen);
        // Mail is nobody's to list, not even in one's own organization.
        sqlx::query("SELECT set_config('app.org_id', $1, false)")
            .bind(world.org.uuid().to_string())
            .execute(&mut app)
            .await
            .unwrap();
        let mails: i64 =
            sqlx::query_scalar("SELECT count(*) FROM deliveries").fetch_one(&mut app).await.unwrap();
        assert_eq!(mails, 0);
    }
    assert_eq!(world.count("SELECT count(*) FROM deliveries").await, 1);
}
