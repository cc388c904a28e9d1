//! The pages where a mailed link leads, and what signing up is where invitations are mailed.

use crate::kit::{Kit, PASSWORD, sql};
use identity::{api::InvitationLinks, issuer::IssuerConfig};
use kernel::{Secret, ids::InvitationId, text::Email};
use testkit::{Browser, Page};
use url::Url;

const TOKEN: &str = "the-token"; // secret-scan: allow

/// With an open invitation; gives its link.
async fn invited(change: impl FnOnce(IssuerConfig) -> IssuerConfig) -> (Kit, Url) {
    let kit = Kit::start_with(|config| {
        change(IssuerConfig { self_signup: false, mails_invitations: true, ..config })
    })
    .await;
    kit.issuer.seed_admin(&Email::parse("root@example.org").unwrap(), |_| Ok(())).await.unwrap();
    let id: InvitationId = kit.db.db.ambient().id();
    sql(&kit.db, &format!(
        "INSERT INTO invitations (id, org_id, email, role, token_hash, invited_by, expires_at, created_at, updated_at)
         SELECT '{}', o.id, 'Ada@example.org', 'viewer', '\\x{}', b.user_id, now() + interval '1 day', now(), now()
         FROM organizations o, platform_bindings b",
        id.uuid(),
        hex::encode(kernel::digest::sha256(TOKEN)),
    ))
    .await;
    let links = InvitationLinks::new(&Secret::new([7; 32]), &kit.base, true);
    let link = Url::parse(links.link(id, "ada@example.org").expose()).unwrap();
    (kit, link)
}

async fn submit(link: &Url, fields: &[(&str, &str)]) -> Page {
    let mut browser = Browser::default();
    let page = browser.open(link.clone(), None).await;
    browser.submit(&page, "/auth/invitation", fields, None).await
}

#[tokio::test]
async fn a_mistake_on_the_page_of_an_invitation_is_named_and_uses_nothing_up() {
    let (kit, link) = invited(|config| config).await;
    let right = [("password", PASSWORD), ("again", PASSWORD)];
    for (wrong, named) in [
        ([("password", PASSWORD), ("again", "another")], "passwords do not match"),
        ([("password", "short"), ("again", "short")], "12 characters"),
    ] {
        let page = submit(&link, &wrong).await;
        assert!(page.status == 400 && page.html.contains(named), "{}", page.html);
        assert!(page.html.contains("Ada@example.org"), "the form is there again: {}", page.html);
    }
    // A form that was not rendered for this browser.
    let mut fields: Vec<_> = link.query_pairs().collect();
    fields.extend(right.map(|(name, value)| (name.into(), value.into())));
    let answer = kit.http.post(kit.url("/auth/invitation")).form(&fields).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    assert_eq!(kit.count("SELECT count(*) FROM invitations WHERE state = 'pending'").await, 1);
    assert_eq!(submit(&link, &right).await.status, 200);
    let made = "SELECT count(*) FROM local_accounts WHERE email = 'ada@example.org' AND email_verified_at IS NOT NULL";
    assert_eq!(kit.count(made).await, 1);
}

#[tokio::test]
async fn concurrent_uses_of_one_link_make_one_account() {
    let (kit, link) = invited(|config| config).await;
    let mut opened = Vec::new();
    for _ in 0..6 {
        let mut browser = Browser::default();
        let page = browser.open(link.clone(), None).await;
        opened.push((browser, page));
    }
    let uses = opened.iter_mut().map(|(browser, page)| {
        browser.submit(page, "/auth/invitation", &[("password", PASSWORD), ("again", PASSWORD)], None)
    });
    let statuses: Vec<_> =
        futures_util::future::join_all(uses).await.iter().map(|page| page.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    let members = "SELECT count(*) FROM tenant_memberships WHERE role = 'viewer'";
    assert_eq!(kit.count(members).await, 1);
}

#[tokio::test]
async fn where_invitations_are_mailed_the_sign_up_page_asks_for_no_token_and_takes_none() {
    for self_signup in [false, true] {
        let (kit, _) = invited(|config| IssuerConfig { self_signup, ..config }).await;
        let mut browser = Browser::default();
        let page = browser.open(kit.url("/auth/signup"), None).await;
        assert_eq!(page.html.contains("<form"), self_signup, "{}", page.html);
        assert!(
            page.html.contains("open the link in the invitation mail")
                && !page.html.contains("name=\"invitation\"")
        );
        let page = browser.open(kit.url("/auth/login"), None).await;
        let page = Page { html: page.html.replace("/auth/login", "/auth/signup"), ..page };
        let fields = [
            ("invitation", TOKEN),
            ("email", "ada@example.org"),
            ("password", PASSWORD),
            ("again", PASSWORD),
        ];
        let page = browser.submit(&page, "/auth/signup", &fields, None).await;
        assert!(page.status == 400 && page.html.contains("link that was mailed"), "{}", page.html);
        assert_eq!(kit.count("SELECT count(*) FROM local_accounts").await, 1, "the administrator's");
    }
}

#[tokio::test]
async fn where_people_sign_in_elsewhere_the_link_shows_how_to_accept() {
    let (kit, link) = invited(|config| IssuerConfig { people: false, ..config }).await;
    let mut browser = Browser::default();
    let page = browser.open(link.clone(), None).await;
    assert_eq!(page.status, 200);
    assert!(page.html.contains("gpuaas auth login --server http"), "{}", page.html);
    assert!(page.html.contains("gpuaas invitations accept inv_"), "{}", page.html);
    assert!(page.html.contains(&crate::kit::param(&link, "proof").unwrap()), "{}", page.html);
    let answer = kit.http.post(kit.url("/auth/invitation")).form(&[("x", "y")]).send().await.unwrap();
    assert_eq!(answer.status(), 405);
}
