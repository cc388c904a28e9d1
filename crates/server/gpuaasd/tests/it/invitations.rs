//! Invitations by mail: a real mail server, the real pages of the issuer, and people who follow the link.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use testkit::{Api, Browser, MailServer, Page, ServerOptions, World, eventually, sign_in};
use url::Url;

pub const PASSWORD: &str = "a long enough password"; // secret-scan: allow

pub fn with_mail(mail: &MailServer) -> ServerOptions {
    let config = format!(
        "[notify.smtp]\nhost = \"127.0.0.1\"\nport = {}\nencryption = \"none\"\nfrom = \"GPUaaS <no-reply@gpuaas.test>\"\n",
        mail.port
    );
    ServerOptions { config, ..ServerOptions::default() }
}

pub struct Invited {
    pub id: String,
    pub token: String,
}

async fn invite(world: &World, org: &str, email: &str) -> (Invited, Value) {
    invite_with(world, org, json!({ "email": email, "role": "member" })).await
}

pub async fn invite_with(world: &World, org: &str, body: Value) -> (Invited, Value) {
    let made = world.admin.post(&format!("/api/v1/orgs/{org}/invitations"), body).await.expect(201);
    let text = |name: &str| made[name].as_str().expect("text").to_owned();
    (Invited { id: text("id"), token: text("token") }, made)
}

/// The only link of the mail about this invitation.
pub async fn mailed_link(world: &World, mail: &MailServer, email: &str, invited: &Invited) -> Url {
    let message = eventually("the mail arrives", || async {
        mail.messages().into_iter().find(|message| {
            message["to"] == json!([email]) && message["text"].to_string().contains(&invited.id)
        })
    })
    .await;
    let text = message["text"].as_str().unwrap();
    assert_eq!(text.matches("http").count(), 1, "{text}");
    assert_eq!(message["html"].as_str().unwrap().matches("href").count(), 1);
    let link = text.split_whitespace().find(|word| word.starts_with("http")).unwrap();
    assert!(link.starts_with(&world.server.base), "{link}");
    Url::parse(link).unwrap()
}

fn proof(link: &Url) -> String {
    link.query_pairs().find(|(name, _)| name == "proof").unwrap().1.into_owned()
}

pub async fn sign_up(browser: &mut Browser, page: &Page) -> Page {
    let fields = [("email", "eve@example.org"), ("password", PASSWORD), ("again", PASSWORD)];
    browser.submit(page, "/auth/invitation", &fields, None).await
}

/// Opens the link in a browser of somebody new.
async fn follow(link: &Url) -> Page {
    Browser::default().open(link.clone(), None).await
}

async fn assert_worthless(link: &Url) {
    let page = follow(link).await;
    assert_eq!(page.status, 400, "{}", page.html);
    assert!(page.html.contains("Ask for a new invitation"), "{}", page.html);
}

pub async fn verified(world: &World, email: &str) -> (Api, Value) {
    let tokens = sign_in(&world.server.base, email, PASSWORD).await;
    let api = world.server.api().with_token(tokens["access_token"].as_str().unwrap());
    let who = api.get("/auth/userinfo").await.expect(200);
    assert_eq!(who["email"], email);
    (api, who["email_verified"].clone())
}

/// The tables in which `text` stands anywhere, in whatever column.
async fn tables_with(world: &World, text: &str) -> Vec<String> {
    let mut conn = world.db.conn(pg::Roles::Admin).await;
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT format('%I', relname) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    let mut found = Vec::new();
    for table in tables {
        let sql = format!("SELECT EXISTS (SELECT FROM {table} t WHERE strpos(t::text, $1) > 0)");
        let is_there: bool =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(text).fetch_one(&mut conn).await.unwrap();
        if is_there {
            found.push(table);
        }
    }
    found
}

#[tokio::test]
async fn whoever_opens_the_mailed_link_signs_up_with_a_proven_address_and_joins_once() {
    let mail = MailServer::up().await;
    let world = World::start_with(with_mail(&mail)).await;
    let org = world.org("acme").await;
    let (invited, made) = invite(&world, &org, "ada@example.org").await;
    assert_eq!(made["mailed_to"], "ada@example.org");
    let link = mailed_link(&world, &mail, "ada@example.org", &invited).await;

    // The inviter's token makes no account: it says nothing about the address.
    let mut inviter = Browser::default();
    let page = inviter.open(Url::parse(&format!("{}/auth/login", world.server.base)).unwrap(), None).await;
    let page = Page { html: page.html.replace("/auth/login", "/auth/signup"), ..page };
    let fields = [("invitation", invited.token.as_str()), ("password", PASSWORD), ("again", PASSWORD)];
    let page = inviter.submit(&page, "/auth/signup", &fields, None).await;
    assert!(page.status == 400 && page.html.contains("link that was mailed"), "{}", page.html);
    let accounts =
        "SELECT count(*) FROM local_accounts WHERE email IN ('ada@example.org', 'eve@example.org')";
    assert_eq!(world.count(accounts).await, 0);
    // Nor is it the proof, nor is the proof of another invitation.
    let (other, _) = invite(&world, &org, "bob@example.org").await;
    let others = mailed_link(&world, &mail, "bob@example.org", &other).await;
    for wrong in [&invited.token, &proof(&others)] {
        let mut forged = link.clone();
        forged.query_pairs_mut().clear().append_pair("invitation", &invited.id).append_pair("proof", wrong);
        assert_worthless(&forged).await;
    }

    // Opening the link changes nothing; the address is given.
    let mut browser = Browser::default();
    for _ in 0..2 {
        let page = browser.open(link.clone(), None).await;
        assert!(page.status == 200 && page.html.contains("value=\"ada@example.org\""), "{}", page.html);
        assert!(page.html.contains(" readonly"), "{}", page.html);
    }
    let page = browser.open(link.clone(), None).await;
    let page = sign_up(&mut browser, &page).await;
    assert!(page.html.contains("You are signed in as ada@example.org"), "{}", page.html);
    assert_eq!(world.count(accounts).await, 1, "whatever address the form holds");
    let (ada, proven) = verified(&world, "ada@example.org").await;
    assert_eq!(proven, true);
    ada.get(&format!("/api/v1/orgs/{org}")).await.expect(200);
    let path = format!("/api/v1/orgs/{org}/invitations/{}", invited.id);
    assert_eq!(world.admin.get(&path).await.expect(200)["state"], "accepted");
    assert_worthless(&link).await;

    // A link of an invitation that was withdrawn, and of one whose time is over.
    world.admin.delete(&format!("/api/v1/orgs/{org}/invitations/{}", other.id)).await.expect(204);
    assert_worthless(&others).await;
    let (late, _) = invite(&world, &org, "cy@example.org").await;
    let lates = mailed_link(&world, &mail, "cy@example.org", &late).await;
    assert_eq!(follow(&lates).await.status, 200);
    world.db.sql("UPDATE invitations SET expires_at = now() WHERE email = 'cy@example.org'").await;
    assert_worthless(&lates).await;

    // The proofs stand nowhere.
    assert!(tables_with(&world, "ada@example.org").await.contains(&"deliveries".to_owned()));
    for link in [&link, &others, &lates] {
        let (text, log) = (proof(link), world.server.log());
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&text).unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        for kept in [text, hex] {
            assert_eq!(tables_with(&world, &kept).await, Vec::<String>::new());
            assert!(!log.contains(&kept));
        }
    }
}

#[tokio::test]
async fn whoever_has_an_account_joins_by_the_mailed_link_which_proves_their_address() {
    let mail = MailServer::up().await;
    let world = World::start_with(with_mail(&mail)).await;
    let org = world.org("acme").await;
    let made = world.admin.post("/api/v1/platform/accounts", json!({ "email": "dee@example.org" })).await;
    let password = made.expect(201)["one_time_password"].as_str().unwrap().to_owned();
    let (invited, _) = invite(&world, &org, "dee@example.org").await;
    let link = mailed_link(&world, &mail, "dee@example.org", &invited).await;

    let mut browser = Browser::default();
    let page = browser.open(link.clone(), None).await;
    assert!(page.html.contains("dee@example.org has an account"), "{}", page.html);
    let page = browser.submit(&page, "/auth/login", &[], None).await;
    assert!(page.html.contains("value=\"dee@example.org\""), "{}", page.html);
    let page = browser.submit(&page, "/auth/login", &[("password", password.as_str())], None).await;
    assert_eq!(page.url, link, "back at the invitation");
    assert!(page.html.contains("You are signed in as dee@example.org"), "{}", page.html);
    let proven = "SELECT count(*) FROM local_accounts WHERE email_verified_at IS NOT NULL";
    assert_eq!(world.count(proven).await, 0);
    let page = browser.submit(&page, "/auth/invitation", &[], None).await;
    assert!(page.html.contains("You are now a member of acme"), "{}", page.html);
    assert_eq!(world.count(proven).await, 1);
    assert_worthless(&link).await;

    // Somebody of another issuer accepts with what the link holds.
    let bo = world.person("bo").await;
    let (invited, _) = invite(&world, &org, "bo@example.org").await;
    let link = mailed_link(&world, &mail, "bo@example.org", &invited).await;
    let accept = format!("/api/v1/invitations/{}/accept", invited.id);
    bo.api.post(&accept, json!({ "token": format!("{}x", proof(&link)) })).await.expect(404);
    bo.api.post(&accept, json!({ "token": proof(&link) })).await.expect(200);
    bo.api.get(&format!("/api/v1/orgs/{org}")).await.expect(200);
}

#[tokio::test]
async fn without_mail_the_inviters_token_makes_an_account_whose_address_is_not_proven() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let (invited, made) = invite(&world, &org, "ada@example.org").await;
    assert!(made.get("mailed_to").is_none(), "{made}");
    let mut browser = Browser::default();
    let page = browser.open(Url::parse(&format!("{}/auth/signup", world.server.base)).unwrap(), None).await;
    let fields = [("invitation", invited.token.as_str()), ("password", PASSWORD), ("again", PASSWORD)];
    let page = browser.submit(&page, "/auth/signup", &fields, None).await;
    assert!(page.html.contains("You are signed in as ada@example.org"), "{}", page.html);
    let (ada, proven) = verified(&world, "ada@example.org").await;
    assert_eq!(proven, false);
    ada.get(&format!("/api/v1/orgs/{org}")).await.expect(200);
    // Consumed, and nothing waits for a mail server that does not exist.
    eventually("the event was handled", || async {
        let handled = "SELECT count(*) FROM inbox_records WHERE consumer = 'notify-invitations'";
        (world.count(handled).await == 1).then_some(())
    })
    .await;
    assert_eq!(world.count("SELECT count(*) FROM deliveries").await, 0);
}

#[tokio::test]
async fn an_organization_invites_so_many_people_within_a_day_and_nobody_again_and_again() {
    let mail = MailServer::up().await;
    let world = World::start_with(with_mail(&mail)).await;
    let (org, other) = (world.org("acme").await, world.org("other").await);
    let most = "/api/v1/platform/policies/identity.invitations_per_day";
    world.admin.put(most, json!({ "value": 7 })).await.expect(200);
    let path = format!("/api/v1/orgs/{org}/invitations");
    let body = |email: &str| json!({ "email": email, "role": "member" });

    // To one address, however often it is withdrawn meanwhile and however it is written.
    for email in ["ada@example.org", "Ada@example.org", "ADA@example.org"] {
        let (invited, _) = invite(&world, &org, email).await;
        world.admin.delete(&format!("{path}/{}", invited.id)).await.expect(204);
    }
    let refused = world.admin.post(&path, body("ada@example.org")).await.refused(429, "quota_exceeded");
    assert!(refused["error"]["suggestion"].as_str().unwrap().contains("tomorrow"), "{refused}");
    // Another organization may.
    invite(&world, &other, "ada@example.org").await;

    // In all, also when everybody is invited at once.
    let emails: Vec<_> = (0..12).map(|n| format!("person-{n}@example.org")).collect();
    let asked = emails.iter().map(|email| world.admin.post(&path, body(email)));
    let answers = futures_util::future::join_all(asked).await;
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 4, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 8, "{statuses:?}");
    let refused = world.admin.post(&path, body("last@example.org")).await.refused(429, "quota_exceeded");
    assert_eq!(refused["error"]["details"]["limit"], 7, "{refused}");
    // No mail without an invitation.
    eventually("the mails of open invitations arrive", || async {
        (mail.messages().iter().filter(|message| message["to"].to_string().contains("person-")).count() == 4)
            .then_some(())
    })
    .await;
    let queued = "SELECT count(*) FROM deliveries WHERE channel = 'invitation' AND address LIKE 'person-%'";
    assert_eq!(world.count(queued).await, 4);
    // A day later there is room again.
    world.db.sql("UPDATE invitations SET created_at = created_at - interval '1 day'").await;
    world.admin.post(&path, body("last@example.org")).await.expect(201);
}
