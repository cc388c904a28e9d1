//! Joining by one link, with the project and role that the inviter chose; and what the invited user sees when signed in.

use serde_json::{Value, json};
use testkit::{Browser, MailServer, Page, World};
use url::Url;

use crate::invitations::{PASSWORD, invite_with, mailed_link, sign_up, verified, with_mail};

async fn open(browser: &mut Browser, link: &Url) -> Page {
    browser.open(link.clone(), None).await
}

/// The role that somebody has in a project by themselves.
async fn project_role(api: &testkit::Api, project: &str) -> Value {
    let me = api.get("/api/v1/me").await.expect(200);
    let projects = me["projects"].as_array().unwrap().clone();
    projects.into_iter().find(|held| held["id"] == project).map_or(Value::Null, |held| held["role"].clone())
}

fn link_of(made: &Value) -> Url {
    Url::parse(made["link"].as_str().unwrap()).unwrap()
}

/// Somebody with an account and a password of their own.
async fn account(world: &World, email: &str) -> Browser {
    let made = world.admin.post("/api/v1/platform/accounts", json!({ "email": email })).await.expect(201);
    let password = made["one_time_password"].as_str().unwrap().to_owned();
    let mut browser = Browser::default();
    let page = browser.open(Url::parse(&format!("{}/auth/login", world.server.base)).unwrap(), None).await;
    let fields = [("email", email), ("password", password.as_str())];
    let page = browser.submit(&page, "/auth/login", &fields, None).await;
    assert!(page.html.contains(&format!("You are signed in as {email}")), "{}", page.html);
    browser
}

#[tokio::test]
async fn one_link_signs_up_and_joins_organization_and_project_with_the_chosen_roles() {
    let mail = MailServer::up().await;
    let world = World::start_with(with_mail(&mail)).await;
    let org = world.org("acme").await;
    let project = world.project(&org, "training").await;
    let body = json!({ "email": "ada@example.org", "role": "member", "project_id": project, "project_role": "admin" });
    let (invited, made) = invite_with(&world, &org, body).await;
    assert_eq!((&made["project_id"], &made["project_role"]), (&json!(project), &json!("admin")));
    let link = mailed_link(&world, &mail, "ada@example.org", &invited).await;

    // Whatever opens it, nothing is joined.
    let mut browser = Browser::default();
    for _ in 0..2 {
        let page = open(&mut browser, &link).await;
        assert!(page.html.contains("acme as member, and its project training as admin"), "{}", page.html);
    }
    let path = format!("/api/v1/orgs/{org}/invitations/{}", invited.id);
    assert_eq!(world.admin.get(&path).await.expect(200)["state"], "pending");

    // The link of the answer is for people who have an account: it makes none, because no mail was read.
    let passed = link_of(&made);
    let mut stranger = Browser::default();
    let page = open(&mut stranger, &passed).await;
    assert!(page.status == 200 && page.html.contains("link in the mail that was sent to"), "{}", page.html);
    let form = Page { html: open(&mut stranger, &link).await.html, url: passed.clone(), status: 200 };
    let token = passed.query_pairs().find(|(name, _)| name == "token").unwrap().1.into_owned();
    let fields = [("proof", ""), ("token", token.as_str()), ("password", PASSWORD), ("again", PASSWORD)];
    let page = stranger.submit(&form, "/auth/invitation", &fields, None).await;
    assert!(page.status == 400 && page.html.contains("link that was mailed"), "{}", page.html);

    let page = open(&mut browser, &link).await;
    let page = sign_up(&mut browser, &page).await;
    assert_eq!(page.status, 200);
    for said in
        ["You are now a member of acme", "acme (member)", "training (admin)", "gpuaas auth login --server"]
    {
        assert!(page.html.contains(said), "{said}: {}", page.html);
    }
    let (ada, _) = verified(&world, "ada@example.org").await;
    assert_eq!(project_role(&ada, &project).await, "admin");
    ada.get(&format!("/api/v1/projects/{project}")).await.expect(200);
    let listed = ada.get(&format!("/api/v1/orgs/{org}/projects")).await.expect(200);
    let slugs: Vec<_> = listed["items"].as_array().unwrap().iter().map(|p| p["slug"].clone()).collect();
    assert_eq!(slugs, ["training"], "only what they are in");
    let contacts = ada.get(&format!("/api/v1/orgs/{org}")).await.expect(200)["contacts"].clone();
    assert_eq!(contacts, json!([{ "name": "root", "email": "root@example.org", "role": "owner" }]));

    // The same address says so again, to them; to others it is used up.
    let page = open(&mut browser, &link).await;
    assert!(page.html.contains("You are now a member of acme"), "{}", page.html);
    for link in [&link, &passed] {
        let page = open(&mut Browser::default(), link).await;
        assert!(page.status == 400 && page.html.contains("was used already"), "{}", page.html);
    }
    let made = "SELECT count(*) FROM audit_logs WHERE action = 'auth.sign_up'";
    assert_eq!(world.count(made).await, 1);
}

#[tokio::test]
async fn whoever_is_signed_in_with_another_address_is_told_and_can_switch() {
    let mail = MailServer::up().await;
    let world = World::start_with(with_mail(&mail)).await;
    let org = world.org("acme").await;
    let mut browser = account(&world, "dee@example.org").await;
    let (invited, made) =
        invite_with(&world, &org, json!({ "email": "ada@example.org", "role": "viewer" })).await;
    let link = mailed_link(&world, &mail, "ada@example.org", &invited).await;
    for link in [&link, &link_of(&made)] {
        let page = open(&mut browser, link).await;
        assert_eq!(page.status, 403);
        for said in [
            "is for ada@example.org",
            "signed in as dee@example.org",
            "Sign out and continue as ada@example.org",
        ] {
            assert!(page.html.contains(said), "{said}: {}", page.html);
        }
        // Also when they insist.
        let page = browser.submit(&page, "/auth/invitation", &[("decision", "join")], None).await;
        assert_eq!(page.status, 403, "{}", page.html);
    }
    let members = format!("/api/v1/orgs/{org}/members");
    assert_eq!(world.admin.get(&members).await.expect(200)["items"].as_array().unwrap().len(), 1);
    let page = open(&mut browser, &link).await;
    let page = browser.submit(&page, "/auth/invitation", &[], None).await;
    assert_eq!(page.url, link);
    assert!(page.html.contains("Create an account and join"), "{}", page.html);
    let page = sign_up(&mut browser, &page).await;
    assert!(page.html.contains("You are now a member of acme"), "{}", page.html);
}

#[tokio::test]
async fn an_invitation_to_a_project_that_was_deleted_joins_the_organization_and_says_so() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let project = world.project(&org, "training").await;
    let body = json!({ "email": "ada@example.org", "role": "member", "project_id": project });
    let (invited, made) = invite_with(&world, &org, body).await;
    assert_eq!(made["project_role"], "member", "unless another one is named");
    world.admin.delete(&format!("/api/v1/projects/{project}")).await.expect(204);
    // Without mail, the link of the answer is the one that signs up.
    let mut browser = Browser::default();
    let page = open(&mut browser, &link_of(&made)).await;
    assert!(page.html.contains("has been deleted"), "{}", page.html);
    let page = sign_up(&mut browser, &page).await;
    assert!(page.html.contains("You are now a member of acme"), "{}", page.html);
    assert!(page.html.contains("Ask an administrator of the organization"), "{}", page.html);
    let after = world.admin.get(&format!("/api/v1/orgs/{org}/invitations/{}", invited.id)).await.expect(200);
    assert_eq!(after["state"], "accepted");
    assert!(after.get("project_id").is_none(), "{after}");
}

#[tokio::test]
async fn an_invitation_is_worth_what_its_sender_may_still_give() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let boss = world.person("boss").await;
    world.join(&boss, &org, "admin").await;
    let invitations = format!("/api/v1/orgs/{org}/invitations");
    let body = json!({ "email": "ada@example.org", "role": "admin" });
    let made = boss.api.post(&invitations, body).await.expect(201);
    let member = format!("/api/v1/orgs/{org}/members/{}", boss.id);
    world.admin.patch(&member, json!({ "role": "member" })).await.expect(200);

    let mut browser = Browser::default();
    let page = open(&mut browser, &link_of(&made)).await;
    let page = sign_up(&mut browser, &page).await;
    assert!(page.status == 400 && page.html.contains("may not give this role any more"), "{}", page.html);
    assert_eq!(world.count("SELECT count(*) FROM local_accounts WHERE email = 'ada@example.org'").await, 0);
    let ada = world.person("ada").await;
    let accept = format!("/api/v1/invitations/{}/accept", made["id"].as_str().unwrap());
    for body in [json!({}), json!({ "token": made["token"] })] {
        let refused = ada.api.post(&accept, body).await.refused(409, "invalid_transition");
        assert_eq!(refused["error"]["details"]["reason"], "inviter_lost_role", "{refused}");
    }
    // It is worth something again with the role.
    world.admin.patch(&member, json!({ "role": "admin" })).await.expect(200);
    ada.api.post(&accept, json!({})).await.expect(200);
}

#[tokio::test]
async fn whoever_is_signed_in_sees_the_invitations_to_their_verified_address_and_answers_them() {
    let world = World::start().await;
    let (acme, labs) = (world.org("acme").await, world.org("labs").await);
    let project = world.project(&acme, "training").await;
    let body = json!({ "email": "Ada@example.org", "role": "member", "project_id": project, "project_role": "viewer" });
    let (first, _) = invite_with(&world, &acme, body).await;
    let (second, _) =
        invite_with(&world, &labs, json!({ "email": "ada@example.org", "role": "viewer" })).await;
    let (others, _) =
        invite_with(&world, &labs, json!({ "email": "bob@example.org", "role": "viewer" })).await;
    let ada = world.person("ada").await;
    let list = || async { ada.api.get("/api/v1/me/invitations").await.expect(200)["items"].clone() };
    let seen = list().await;
    let ids: Vec<_> = seen.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&first.id, &second.id]);
    for (field, value) in [
        ("org_name", "acme"),
        ("role", "member"),
        ("project_name", "training"),
        ("project_role", "viewer"),
        ("invited_by", "root"),
        ("invited_by_email", "root@example.org"),
    ] {
        assert_eq!(seen[0][field], value, "{seen}");
    }
    // Nobody answers for others.
    for verb in ["accept", "decline"] {
        ada.api
            .post(&format!("/api/v1/invitations/{}/{verb}", others.id), json!({}))
            .await
            .refused(404, "not_found");
    }
    ada.api.post(&format!("/api/v1/invitations/{}/accept", first.id), json!({})).await.expect(200);
    assert_eq!(project_role(&ada.api, &project).await, "viewer");
    let decline = format!("/api/v1/invitations/{}/decline", second.id);
    ada.api.post(&decline, json!({})).await.expect(204);
    ada.api.post(&decline, json!({})).await.refused(404, "not_found");
    let declined =
        world.admin.get(&format!("/api/v1/orgs/{labs}/invitations/{}", second.id)).await.expect(200);
    assert_eq!((&declined["state"], &declined["declined_by"]), (&json!("revoked"), &json!(ada.id)));
    assert_eq!(list().await, json!([]));

    // An address that somebody typed and nobody proved shows nothing.
    let (bobs, _) = (others, ());
    let made = world
        .admin
        .post("/api/v1/platform/accounts", json!({ "email": "bob@example.org" }))
        .await
        .expect(201);
    let password = made["one_time_password"].as_str().unwrap();
    let changed = change_password(&world, "bob@example.org", password).await;
    let tokens = testkit::sign_in(&world.server.base, "bob@example.org", &changed).await;
    let bob = world.server.api().with_token(tokens["access_token"].as_str().unwrap());
    assert_eq!(bob.get("/api/v1/me/invitations").await.expect(200)["items"], json!([]));
    let accept = format!("/api/v1/invitations/{}/accept", bobs.id);
    bob.post(&accept, json!({})).await.refused(404, "not_found");
}

/// The one-time password must be changed before tokens are given.
async fn change_password(world: &World, email: &str, current: &str) -> String {
    let mut browser = Browser::default();
    let page = browser
        .open(Url::parse(&format!("{}/auth/login?continue=/auth/password", world.server.base)).unwrap(), None)
        .await;
    let page = browser.submit(&page, "/auth/login", &[("email", email), ("password", current)], None).await;
    let fields = [("current", current), ("new", PASSWORD), ("again", PASSWORD)];
    let page = browser.submit(&page, "/auth/password", &fields, None).await;
    assert_eq!(page.status, 200, "{}", page.html);
    PASSWORD.to_owned()
}

#[tokio::test]
async fn a_project_of_an_invitation_is_one_of_the_organization() {
    let world = World::start().await;
    let (acme, labs) = (world.org("acme").await, world.org("labs").await);
    let project = world.project(&labs, "theirs").await;
    let path = format!("/api/v1/orgs/{acme}/invitations");
    let body = |more: Value| {
        let mut body = json!({ "email": "ada@example.org", "role": "member" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    world.admin.post(&path, body(json!({ "project_id": project }))).await.refused(404, "not_found");
    let refused = world
        .admin
        .post(&path, body(json!({ "project_role": "member" })))
        .await
        .refused(400, "validation_error");
    assert!(refused.to_string().contains("project_role"), "{refused}");
}
