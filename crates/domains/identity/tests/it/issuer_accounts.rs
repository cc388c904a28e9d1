//! Signing in and up, lockout, forced password change, forms, the first administrator.

use crate::kit::{CALLBACK, Kit, PASSWORD, param, sql};
use endpoint::Caller;
use kernel::{Code, Role, text::Email};
use testkit::{Browser, pkce};

const WRONG: &str = "The e-mail address or the password is wrong";

#[tokio::test]
async fn an_address_waits_after_five_wrong_passwords_at_an_account() {
    let kit = Kit::start().await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    for _ in 0..5 {
        let page = kit.sign_in(&mut Browser::default(), "ann@example.org", "wrong").await;
        assert_eq!(page.status, 401);
    }
    let page = kit.sign_in(&mut Browser::default(), "ann@example.org", PASSWORD).await;
    assert!(page.status == 401 && page.html.contains(WRONG), "the right password, too soon");
    kit.guesses_age(800).await;
    assert_eq!(kit.sign_in(&mut Browser::default(), "ann@example.org", PASSWORD).await.status, 401);
    kit.guesses_age(100).await;
    assert_eq!(kit.sign_in(&mut Browser::default(), "Ann@Example.org", PASSWORD).await.status, 200);
    // The count starts anew.
    for _ in 0..4 {
        kit.sign_in(&mut Browser::default(), "ann@example.org", "wrong").await;
    }
    assert_eq!(kit.sign_in(&mut Browser::default(), "ann@example.org", PASSWORD).await.status, 200);
    let refused = "SELECT count(*) FROM audit_logs WHERE action = 'auth.sign_in' AND result = 'refused'";
    assert_eq!(kit.count(refused).await, 11);
    let allowed = "SELECT count(*) FROM audit_logs WHERE action = 'auth.sign_in' AND result = 'allowed' AND actor_kind = 'user'";
    assert_eq!(kit.count(allowed).await, 2);
}

#[tokio::test]
async fn concurrent_guesses_cannot_outrun_the_count() {
    let kit = Kit::start().await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    let mut opened = Vec::new();
    for _ in 0..12 {
        let mut browser = Browser::default();
        let form = kit.sign_in_form(&mut browser).await;
        opened.push((browser, form));
    }
    let guesses = opened
        .iter_mut()
        .map(|(browser, form)| kit.sign_in_submit(browser, form, "ann@example.org", "wrong"));
    let answers = futures_util::future::join_all(guesses).await;
    let statuses: Vec<_> = answers.iter().map(|page| page.status).collect();
    assert!(statuses.iter().all(|s| *s == 401), "{statuses:?}");
    // Five periods of waiting, one for each guess that was let through.
    let spent = "SELECT round(extract(epoch FROM spent_until - now()) / 900)::bigint
                 FROM issuer_guesses WHERE account_id IS NOT NULL";
    assert_eq!(kit.count(spent).await, 5);
}

#[tokio::test]
async fn an_unknown_account_is_told_the_same_as_a_wrong_password() {
    let kit = Kit::start().await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    for email in ["ann@example.org", "nobody@example.org", "not an address", ""] {
        let page = kit.sign_in(&mut Browser::default(), email, "wrong").await;
        assert!(page.status == 401 && page.html.contains(WRONG), "{email}: {}", page.html);
    }
}

#[tokio::test]
async fn a_form_that_was_not_rendered_for_this_browser_is_refused() {
    let kit = Kit::start().await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    let form = [("email", "ann@example.org"), ("password", PASSWORD)];
    for path in ["/auth/login", "/auth/signup", "/auth/password", "/auth/device", "/auth/logout"] {
        let response = kit.http.post(kit.url(path)).form(&form).send().await.unwrap();
        assert_eq!(response.status(), 400, "{path}");
        assert!(response.headers().get("set-cookie").is_none());
    }
    let mut attacker = Browser::default();
    let theirs = attacker.open(kit.url("/auth/login"), None).await;
    let mut victim = Browser::default();
    victim.open(kit.url("/auth/login"), None).await;
    let page = victim.submit(&theirs, "/auth/login", &form, None).await;
    assert_eq!(page.status, 400, "a token of another browser");
}

#[tokio::test]
async fn pages_carry_a_policy_that_lets_nothing_in_and_cookies_are_not_for_scripts() {
    let kit = Kit::start().await;
    let login = format!(
        "/auth/login?{}",
        url::form_urlencoded::Serializer::new(String::new())
            .append_pair(
                "continue",
                &format!("/auth/authorize?{}", kit.authorize_url("c", &[]).query().unwrap())
            )
            .finish()
    );
    let response = kit.http.get(kit.url(&login)).send().await.unwrap();
    let csp = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(csp.starts_with("default-src 'none'") && csp.contains("frame-ancestors 'none'"), "{csp}");
    assert!(csp.contains("form-action 'self' http://127.0.0.1:9;"), "the way back is allowed: {csp}");
    let cookie = response.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    let hostile = kit.http.get(kit.url("/auth/login?continue=https://evil.example/")).send().await.unwrap();
    assert!(!hostile.text().await.unwrap().contains("evil.example"));
}

#[tokio::test]
async fn the_first_administrator_is_made_once_and_must_change_the_password() {
    let kit = Kit::start().await;
    let email = Email::parse("root@example.org").unwrap();
    let kept = std::sync::Mutex::new(Vec::new());
    let keep = |password: &kernel::Secret| {
        kept.lock().unwrap().push(password.clone());
        Ok(())
    };
    let seeds = (0..4).map(|_| kit.issuer.seed_admin(&email, keep));
    let seeds = futures_util::future::join_all(seeds).await;
    assert_eq!(seeds.into_iter().filter(|s| *s.as_ref().unwrap()).count(), 1, "one of the starting replicas");
    assert!(!kit.issuer.seed_admin(&email, keep).await.unwrap());
    let made = kept.lock().unwrap().clone();
    assert_eq!(made.len(), 1, "the losers do not overwrite what the winner kept");

    let mut browser = Browser::default();
    let (verifier, challenge) = pkce("admin");
    let page = browser.open(kit.authorize_url(&challenge, &[]), Some(CALLBACK)).await;
    let fields = [("email", "root@example.org"), ("password", made[0].expose().as_str())];
    let page = browser.submit(&page, "/auth/login", &fields, Some(CALLBACK)).await;
    assert_eq!(page.url.path(), "/auth/password", "the flow stops here until the password is changed");
    let change = |current: &str, new: &str| {
        [
            ("current".to_owned(), current.to_owned()),
            ("new".to_owned(), new.to_owned()),
            ("again".to_owned(), new.to_owned()),
        ]
    };
    for (current, new) in
        [(made[0].expose().as_str(), "short"), ("wrong", PASSWORD), (made[0].expose(), made[0].expose())]
    {
        let fields = change(current, new);
        let fields: Vec<_> = fields.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let page = browser.submit(&page, "/auth/password", &fields, Some(CALLBACK)).await;
        assert_eq!(page.status, 400, "{new}");
    }
    let fields = change(made[0].expose(), PASSWORD);
    let fields: Vec<_> = fields.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let page = browser.submit(&page, "/auth/password", &fields, Some(CALLBACK)).await;
    let (status, tokens) = kit.exchange(&param(&page.url, "code").unwrap(), &verifier).await;
    assert_eq!(status, 200, "{tokens}");
    let Caller::User { grants, .. } = kit.who(&tokens["access_token"]).await.unwrap() else {
        panic!("a person")
    };
    assert_eq!(grants.platform, [Role::PlatformAdmin]);
    assert_eq!(grants.orgs.len(), 1);
}

#[tokio::test]
async fn there_is_no_first_administrator_before_the_password_is_safe() {
    let kit = Kit::start().await;
    let email = Email::parse("root@example.org").unwrap();
    let failed = kit.issuer.seed_admin(&email, |_| Err(std::io::Error::other("the disk is full"))).await;
    assert!(format!("{:?}", failed.unwrap_err()).contains("the disk is full"));
    for table in ["local_accounts", "users", "platform_bindings", "outbox_events"] {
        assert_eq!(kit.count(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    assert!(!kit.issuer.has_admin().await.unwrap());
    assert!(kit.issuer.seed_admin(&email, |_| Ok(())).await.unwrap(), "the next start makes it");
    assert!(kit.issuer.has_admin().await.unwrap());
}

#[tokio::test]
async fn an_administrator_makes_resets_and_disables_accounts() {
    let kit = Kit::start().await;
    let write = async || {
        let origin = pg::Origin::internal(kernel::CorrelationId(kit.db.db.ambient().uuid()));
        kit.db.db.write(pg::Permit::system("test", origin), "test.account").await.unwrap()
    };
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    let new = identity::issuer::NewAccount { email: Email::parse("Ann@example.org").unwrap(), name: None };
    let taken = kit.issuer.create_account(&mut write().await, &new).await.unwrap_err();
    assert!(format!("{taken:?}").starts_with("already_exists"), "{taken:?}");

    let new = identity::issuer::NewAccount { email: Email::parse("bob@example.org").unwrap(), name: None };
    let mut tx = write().await;
    let (account, password) = kit.issuer.create_account(&mut tx, &new).await.unwrap();
    tx.commit(None).await.unwrap();
    assert!(account.must_change_password);
    let page = kit.sign_in(&mut Browser::default(), "bob@example.org", password.expose()).await;
    assert_eq!(page.url.path(), "/auth/password");

    let mut tx = write().await;
    let reset = kit.issuer.reset_password(&mut tx, account.id).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(kit.sign_in(&mut Browser::default(), "bob@example.org", password.expose()).await.status, 401);
    let mut browser = Browser::default();
    assert_eq!(kit.sign_in(&mut browser, "bob@example.org", reset.expose()).await.status, 200);

    for (disabled, status) in [(true, 401), (false, 200)] {
        let mut tx = write().await;
        kit.issuer.set_account_disabled(&mut tx, account.id, disabled).await.unwrap();
        tx.commit(None).await.unwrap();
        assert_eq!(browser.open(kit.url("/auth/device"), None).await.url.path(), "/auth/login");
        let page = kit.sign_in(&mut Browser::default(), "bob@example.org", reset.expose()).await;
        assert_eq!(page.status, status);
    }
}

#[tokio::test]
async fn without_self_signup_an_account_needs_an_open_invitation_and_gets_its_address() {
    let kit = Kit::start_with(|config| identity::issuer::IssuerConfig { self_signup: false, ..config }).await;
    let email = Email::parse("root@example.org").unwrap();
    kit.issuer.seed_admin(&email, |_| Ok(())).await.unwrap();
    let hash = hex::encode(kernel::digest::sha256("the-token"));
    sql(&kit.db, &format!(
        "INSERT INTO invitations (id, org_id, email, role, token_hash, invited_by, expires_at, created_at, updated_at)
         SELECT gen_random_uuid(), o.id, 'Bob@example.org', 'member', '\\x{hash}', b.user_id, now() + interval '1 day', now(), now()
         FROM organizations o, platform_bindings b"
    )).await;
    let attempt = async |token: &str, email: &str| {
        let mut browser = Browser::default();
        let page = browser.open(kit.url("/auth/signup"), None).await;
        let fields = [("invitation", token), ("email", email), ("password", PASSWORD), ("again", PASSWORD)];
        browser.submit(&page, "/auth/signup", &fields, None).await.status
    };
    assert_eq!(attempt("", "eve@example.org").await, 400);
    assert_eq!(attempt("wrong", "eve@example.org").await, 400);
    assert_eq!(attempt("the-token", "eve@example.org").await, 200);
    assert_eq!(kit.count("SELECT count(*) FROM local_accounts WHERE email = 'bob@example.org'").await, 1);
    assert_eq!(kit.count("SELECT count(*) FROM local_accounts WHERE email = 'eve@example.org'").await, 0);
    let consumed = "SELECT count(*) FROM invitations i JOIN tenant_memberships m ON m.org_id = i.org_id
        JOIN users u ON u.id = m.user_id AND u.id = i.accepted_by
        WHERE i.state = 'accepted' AND m.role = 'member' AND u.email = 'bob@example.org'";
    assert_eq!(kit.count(consumed).await, 1, "the invitation is used up, and bob is a member");
    assert_eq!(attempt("the-token", "").await, 400, "it makes one account");
    sql(
        &kit.db,
        "DELETE FROM issuer_browser_sessions; DELETE FROM local_accounts WHERE email = 'bob@example.org'",
    )
    .await;
    assert_eq!(attempt("the-token", "").await, 400, "also when the account is gone");
    let hash = hex::encode(kernel::digest::sha256("another"));
    sql(&kit.db, &format!(
        "INSERT INTO invitations (id, org_id, email, role, token_hash, invited_by, expires_at, created_at, updated_at)
         SELECT gen_random_uuid(), org_id, 'eve@example.org', 'member', '\\x{hash}', gen_random_uuid(), now() + interval '1 day',
             now(), now() FROM invitations"
    )).await;
    kit.advance(2 * 86_400);
    assert_eq!(attempt("another", "").await, 400, "the invitation has expired");
}

#[tokio::test]
async fn changing_the_password_ends_every_other_sign_in() {
    let kit = Kit::start().await;
    let (mut here, mut there) = (Browser::default(), Browser::default());
    kit.sign_up(&mut here, "ann@example.org").await;
    kit.sign_in(&mut there, "ann@example.org", PASSWORD).await;
    let tokens = kit.tokens(&mut there, "x").await;
    let page = here.open(kit.url("/auth/password"), None).await;
    let fields =
        [("current", PASSWORD), ("new", "another long password"), ("again", "another long password")];
    let page = here.submit(&page, "/auth/password", &fields, None).await;
    assert!(page.html.contains("You are signed in"), "{}", page.html);
    assert_eq!(kit.who(&tokens["access_token"]).await.unwrap_err(), Code::TokenRevoked);
    assert_eq!(kit.refresh(&tokens["refresh_token"]).await.0, 400);
    assert!(there.open(kit.url("/auth/device"), None).await.url.path() == "/auth/login");
    assert_eq!(kit.sign_in(&mut there, "ann@example.org", PASSWORD).await.status, 401);
}

#[tokio::test]
async fn signing_out_ends_the_browsers_sign_in() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let address = format!("/auth/logout?post_logout_redirect_uri={}/console/", kit.base);
    let page = browser.open(kit.url(&address), None).await;
    let end = format!("{}/console/", kit.base);
    let page = browser.submit(&page, "/auth/logout", &[], Some(&end)).await;
    assert_eq!(page.url.as_str(), end);
    assert_eq!(browser.open(kit.url("/auth/device"), None).await.url.path(), "/auth/login");
}

#[tokio::test]
async fn one_address_runs_out_of_guesses() {
    let three = std::num::NonZeroU32::new(3).unwrap();
    let kit = Kit::start_with(|mut config| {
        config.rates.sign_in = three;
        config
    })
    .await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(kit.sign_in(&mut Browser::default(), "nobody@example.org", "wrong").await.status);
    }
    assert_eq!(statuses, [401, 401, 401, 429]);
}

#[tokio::test]
async fn oversized_malformed_and_odd_requests_get_a_clear_refusal() {
    let kit = Kit::start().await;
    let post = |path: &str, kind: &str, body: String| {
        kit.http.post(kit.url(path)).header("content-type", kind.to_owned()).body(body).send()
    };
    let form = "application/x-www-form-urlencoded";
    for (body, kind, expected) in [
        ("x".repeat(20_000), form, 413),
        ("a=1&a=2".to_owned(), form, 400),
        ("a=%00".to_owned(), form, 400),
        ("{}".to_owned(), "application/json", 415),
        (String::new(), form, 400),
    ] {
        let response = post("/auth/token", kind, body).await.unwrap();
        assert_eq!(response.status(), expected);
        let answer: serde_json::Value = response.json().await.unwrap();
        assert_eq!(answer["error"], "invalid_request");
    }
    assert_eq!(kit.http.get(kit.url("/auth/token")).send().await.unwrap().status(), 405);
}
