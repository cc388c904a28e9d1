//! Mail, with a real server that is there, away, or says no.

use chrono::TimeDelta;
use http::Method;
use notify::{jobs, model::delivery::Channel};
use serde_json::json;
use testkit::{MailServer, free_port};

use crate::{receiver::Receiver, world::World};
use identity::api::PlatformRole;

#[tokio::test]
async fn a_person_who_is_not_signed_in_gets_the_warning_by_mail() {
    let mail = MailServer::up().await;
    let world = World::new(mail.port).await;
    world.happens(&world.low_balance()).await;
    assert_eq!(world.send(Channel::Mail).await, 1);
    let messages = mail.messages();
    assert_eq!(messages.len(), 1);
    let message = &messages[0];
    assert_eq!(
        (&message["to"], &message["from"]),
        (&json!(["owner@example.org"]), &json!("no-reply@gpuaas.test"))
    );
    assert_eq!(message["headers"]["Subject"], "[GPUaaS] Low balance");
    assert_eq!(message["headers"]["Auto-Submitted"], "auto-generated");
    let link = format!("https://gpuaas.test/orgs/{}/billing", world.org);
    for part in ["text", "html"] {
        let text = message[part].as_str().unwrap();
        assert!(text.contains("4.50 USD") && text.contains(&link), "{text}");
    }
    // By this a receiver knows a message that comes twice.
    let id = world
        .get(
            world.platform(PlatformRole::PlatformOps, "ops@example.org").await,
            "/api/v1/platform/deliveries",
        )
        .await;
    let expected = format!("<{}@gpuaas.test>", id["items"][0]["id"].as_str().unwrap());
    assert_eq!(message["headers"]["Message-ID"], expected);
    assert_eq!(id["items"][0]["state"], "sent");
    assert!(id["items"][0].get("address").is_none(), "operators do not see to whom or what");
}

#[tokio::test]
async fn organizations_take_turns_however_many_mails_one_has() {
    let mail = MailServer::up().await;
    let world = World::new(mail.port).await;
    for (channel, event) in
        [("mail", "billing.low_balance_warning"), ("invitation", "identity.invitation.created")]
    {
        // A hundred of one organization have waited longest, and cannot be read: each attempt ends it.
        world
            .sql(&format!(
                "INSERT INTO deliveries (id, channel, state, event_id, event_type, org_id, address, content,
                     next_attempt_at, queued_at, created_at)
                 SELECT gen_random_uuid(), '{channel}', 'queued', gen_random_uuid(), '{event}', '{}', 'x@example.org', '?',
                     timestamptz '{now}' - interval '1 hour', '{now}', '{now}' FROM generate_series(1, 100)",
                world.org.uuid(),
                now = world.now().to_rfc3339(),
            ))
            .await;
    }
    let (second, _) = world.second_org().await;
    for (channel, lane, at_once) in [("mail", Channel::Mail, 8), ("invitation", Channel::Invitation, 4)] {
        for org in [format!("'{}'", second.uuid()), "NULL".to_owned()] {
            if (channel, org.as_str()) == ("invitation", "NULL") {
                continue;
            }
            world
                .sql(&format!(
                    "INSERT INTO deliveries (id, channel, state, event_id, event_type, org_id, address, content,
                         next_attempt_at, queued_at, created_at)
                     VALUES (gen_random_uuid(), '{channel}', 'queued', gen_random_uuid(), 'late', {org}, 'y@example.org', '?',
                         '{now}', '{now}', '{now}')",
                    now = world.now().to_rfc3339(),
                ))
                .await;
        }
        assert_eq!(jobs::send_due(&world.relay, lane).await.unwrap(), at_once);
        let waiting = format!(
            "SELECT count(*) FROM deliveries WHERE channel = '{channel}' AND state = 'queued' AND event_type = 'late'"
        );
        assert_eq!(world.count(&waiting).await, 0, "{channel}: nobody waits behind the hundred");
    }
}

#[tokio::test]
async fn a_dead_mail_server_delays_mail_and_nothing_else() {
    let mut mail = MailServer::down();
    let world = World::new(mail.port).await;
    let receiver = Receiver::start(200).await;
    receiver.registered(&world).await;
    world.happens(&world.low_balance()).await;
    assert_eq!(world.send(Channel::Mail).await, 1);
    assert_eq!(world.send(Channel::Webhook).await, 1);
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(world.notifications(world.owner).await.len(), 1);
    let waiting = "SELECT count(*) FROM deliveries WHERE channel = 'mail' AND state = 'queued' AND last_error IS NOT NULL";
    assert_eq!(world.count(waiting).await, 1);
    // It is tried again, less and less often, and nobody else is kept waiting.
    world.goes_on(Channel::Mail, 30, TimeDelta::seconds(10)).await;
    let attempts = world.count("SELECT attempts::bigint FROM deliveries WHERE channel = 'mail'").await;
    assert!((3..=8).contains(&attempts), "{attempts} attempts within five minutes");
    world.happens(&world.depleted()).await;
    world.send(Channel::Webhook).await;
    assert_eq!(receiver.received().len(), 2);
    // The server comes back, and so does everything.
    mail.start().await;
    world.goes_on(Channel::Mail, 6, TimeDelta::minutes(10)).await;
    let mut subjects: Vec<_> = mail.messages().iter().map(|m| m["headers"]["Subject"].clone()).collect();
    subjects.sort_by_key(ToString::to_string);
    assert_eq!(subjects, [json!("[GPUaaS] Balance used up"), json!("[GPUaaS] Low balance")]);
    assert_eq!(world.count("SELECT count(*) FROM deliveries WHERE state <> 'sent'").await, 0);
}

#[tokio::test]
async fn what_the_server_puts_off_comes_again_and_what_it_refuses_does_not() {
    let mail = MailServer::up().await;
    let world = World::new(mail.port).await;
    world.member("admin", "later-anne@example.org").await;
    world.member("admin", "never-bob@example.org").await;
    world.happens(&world.low_balance()).await;
    world.send(Channel::Mail).await;
    assert_eq!(mail.messages().len(), 1, "the owner's");
    let state =
        |address: &str| format!("SELECT count(*) FROM deliveries WHERE address = '{address}' AND state = ");
    assert_eq!(world.count(&(state("later-anne@example.org") + "'queued'")).await, 1);
    assert_eq!(world.count(&(state("never-bob@example.org") + "'failed' AND attempts = 1")).await, 1);
    world.goes_on(Channel::Mail, 2, TimeDelta::minutes(1)).await;
    assert_eq!(mail.messages().len(), 2);
    assert_eq!(mail.messages()[1]["to"], json!(["later-anne@example.org"]));
}

#[tokio::test]
async fn mail_is_given_up_after_a_day_and_an_operator_can_have_it_sent_after_all() {
    let mut mail = MailServer::down();
    let world = World::new(mail.port).await;
    let ops = world.platform(PlatformRole::PlatformOps, "ops@example.org").await;
    world.happens(&world.low_balance()).await;
    world.goes_on(Channel::Mail, 50, TimeDelta::minutes(30)).await;
    let failed = world.get(ops, "/api/v1/platform/deliveries?state=failed&channel=mail").await;
    let delivery = &failed["items"][0];
    assert!(delivery["last_error"].as_str().unwrap().to_lowercase().contains("connection"), "{delivery}");
    assert!(delivery["attempts"].as_i64().unwrap() > 10);
    mail.start().await;
    let path = format!("/api/v1/platform/deliveries/{}/retry", delivery["id"].as_str().unwrap());
    world.call(world.owner, Method::POST, &path, None).await.refused(403);
    assert_eq!(world.call(ops, Method::POST, &path, None).await.ok()["state"], "queued");
    world.send(Channel::Mail).await;
    assert_eq!(mail.messages().len(), 1);
    world.call(ops, Method::POST, &path, None).await.refused(409);
}

#[tokio::test]
async fn addresses_and_names_that_would_break_a_message_do_not() {
    let mail = MailServer::up().await;
    let world = World::new(mail.port).await;
    let eve = world.member("admin", "a@example.org").await;
    // No service takes such addresses and names.
    world
        .sql(&format!(
            "UPDATE users SET email = E'a@example.org\\r\\nRCPT TO:<eve@example.org>' WHERE id = '{}'",
            eve.uuid()
        ))
        .await;
    world
        .sql(&format!(
            "UPDATE users SET name = E'Eve\\r\\nBcc: eve@example.org\\r\\n\\r\\n<script>' WHERE id = '{}'",
            world.owner.uuid()
        ))
        .await;
    world.happens(&world.low_balance()).await;
    world.send(Channel::Mail).await;
    let messages = mail.messages();
    assert_eq!(messages.len(), 1, "the address that is none is not written to");
    assert_eq!(messages[0]["to"], json!(["owner@example.org"]));
    assert!(messages[0]["headers"].get("Bcc").is_none());
    assert!(!messages[0]["html"].as_str().unwrap().contains("<script>"));
}

#[tokio::test]
async fn a_message_that_somebody_took_and_lost_is_sent_by_the_next() {
    let mail = MailServer::up().await;
    let world = World::new(mail.port).await;
    world.happens(&world.low_balance()).await;
    let taken = notify::service::sending::take(&world.relay, Channel::Mail, 5).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(world.send(Channel::Mail).await, 0, "it is taken");
    world.passes(TimeDelta::minutes(3));
    assert_eq!(world.send(Channel::Mail).await, 1);
    // Whoever took it first comes back late: it counts no more.
    let late = taken.into_iter().next().unwrap();
    notify::service::sending::send(&world.relay, Channel::Mail, late).await.unwrap();
    let ids: Vec<_> = mail.messages().iter().map(|m| m["headers"]["Message-ID"].clone()).collect();
    assert_eq!(ids.len(), 2, "at least once");
    assert_eq!(ids[0], ids[1], "and it can be told");
    assert_eq!(world.count("SELECT count(*) FROM deliveries WHERE state = 'sent' AND attempts = 2").await, 1);
}

#[tokio::test]
async fn somebody_without_an_address_is_told_in_the_product() {
    let world = World::new(free_port()).await;
    world.sql("UPDATE users SET email = NULL").await;
    world.happens(&world.low_balance()).await;
    assert_eq!(world.count("SELECT count(*) FROM deliveries").await, 0);
    assert_eq!(world.notifications(world.owner).await.len(), 1);
}
