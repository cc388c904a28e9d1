//! People hear of their balance, also when nobody is signed in and the mail server is away.

use std::time::Duration;

use serde_json::json;
use testkit::{MailServer, ServerOptions, World, eventually, eventually_within};

fn options(mail: &MailServer) -> ServerOptions {
    let config = format!(
        "[notify.smtp]\nhost = \"127.0.0.1\"\nport = {}\nencryption = \"none\"\nfrom = \"GPUaaS <no-reply@gpuaas.test>\"\n",
        mail.port
    );
    ServerOptions { config, ..ServerOptions::default() }
}

#[tokio::test]
async fn somebody_who_signed_out_hears_of_a_low_balance_by_mail_and_finds_it_when_they_come_back() {
    let mut mail = MailServer::down();
    let world = World::start_with(options(&mail)).await;
    let ann = world.person("ann").await;
    let mine = ann.api.get("/api/v1/me/sessions").await.expect(200);
    let session = mine["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(ann.api.delete(&format!("/api/v1/me/sessions/{session}")).await.status, 204);
    // Not much: at or below the threshold of the policy.
    let credit =
        json!({ "org_id": ann.org_id, "kind": "credit", "amount_minor": 400, "reason": "a welcome gift" });
    world.admin.post_once("gift-1", "/api/v1/platform/billing/adjustments", credit).await.expect(201);
    // The mail server is away. It is noticed, and the product says so already.
    eventually("somebody tried to send it", || async {
        let tried = "SELECT count(*) FROM deliveries WHERE channel = 'mail' AND attempts > 0 AND last_error IS NOT NULL";
        (world.count(tried).await > 0).then_some(())
    })
    .await;
    let waiting = world.admin.get("/api/v1/platform/deliveries?state=queued").await.expect(200);
    assert_eq!(waiting["items"][0]["channel"], "mail");
    let back = world.server.api().with_token(world.idp.token("ann", "2"));
    let told = back.get("/api/v1/me/notifications?unread=true").await.expect(200);
    let kinds: Vec<_> = told["items"].as_array().unwrap().iter().map(|one| one["kind"].clone()).collect();
    assert!(kinds.contains(&json!("low_balance")), "{told}");
    // It comes back, and the mail with it.
    mail.start().await;
    let message = eventually_within(Duration::from_secs(60), "the mail arrives", || async {
        mail.messages().into_iter().find(|message| message["to"] == json!(["ann@example.org"]))
    })
    .await;
    assert!(message["text"].as_str().unwrap().contains("4.00 USD"), "{message}");
}
