//! Authorization code with PKCE, refresh, and what is refused.

use crate::kit::{CALLBACK, Kit, claims, kid, param};
use endpoint::Caller;
use kernel::Code;
use serde_json::json;
use testkit::{Browser, pkce};

#[tokio::test]
async fn a_code_with_its_verifier_becomes_tokens_that_authenticate() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let (verifier, challenge) = pkce("happy");
    let page = kit.authorize(&mut browser, kit.authorize_url(&challenge, &[]), "continue").await;
    assert_eq!(param(&page.url, "state").as_deref(), Some("st"));
    assert_eq!(param(&page.url, "iss").as_deref(), Some(kit.base.as_str()));
    let (status, tokens) = kit.exchange(&param(&page.url, "code").unwrap(), &verifier).await;
    assert_eq!((status, &tokens["token_type"], &tokens["expires_in"]), (200, &json!("Bearer"), &json!(600)));

    let access = claims(&tokens["access_token"]);
    assert_eq!((&access["iss"], &access["aud"]), (&json!(kit.base), &json!("gpuaas")));
    let id = claims(&tokens["id_token"]);
    assert_eq!(
        (&id["aud"], &id["nonce"], &id["email"]),
        (&json!("gpuaas-cli"), &json!("no"), &json!("ann@example.org"))
    );
    assert_eq!(id["sub"], access["sub"]);

    let Caller::User { grants, .. } = kit.who(&tokens["access_token"]).await.unwrap() else {
        panic!("a person")
    };
    assert_eq!((grants.orgs.len(), grants.projects.len(), grants.platform.len()), (1, 1, 0));
    assert_eq!(
        kit.who(&tokens["id_token"]).await.unwrap_err(),
        Code::TokenInvalid,
        "an id token opens nothing"
    );

    let info = kit.http.get(kit.url("/auth/userinfo")).bearer_auth(tokens["access_token"].as_str().unwrap());
    let info: serde_json::Value = info.send().await.unwrap().json().await.unwrap();
    assert_eq!((&info["sub"], &info["email"]), (&access["sub"], &json!("ann@example.org")));

    let discovery: serde_json::Value = kit
        .http
        .get(kit.url("/.well-known/openid-configuration"))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(discovery["issuer"], json!(kit.base));
    let jwks: serde_json::Value =
        kit.http.get(discovery["jwks_uri"].as_str().unwrap()).send().await.unwrap().json().await.unwrap();
    assert_eq!(jwks["keys"][0]["kid"], json!(kid(&tokens["access_token"])));
    assert!(jwks["keys"][0].get("d").is_none());

    for action in ["auth.sign_up", "auth.token.issue"] {
        assert_eq!(
            kit.count(&format!("SELECT count(*) FROM audit_logs WHERE action = '{action}'")).await,
            1,
            "{action}"
        );
    }
    kit.advance(641);
    assert_eq!(kit.who(&tokens["access_token"]).await.unwrap_err(), Code::TokenExpired);
}

#[tokio::test]
async fn a_browser_that_is_signed_in_gives_no_code_to_a_program_unasked() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let (_, challenge) = pkce("x");
    let url = kit.authorize_url(&challenge, &[]);
    let page = browser.open(url.clone(), Some(CALLBACK)).await;
    assert_eq!((page.status, page.url.path()), (200, "/auth/authorize"));
    assert!(page.html.contains("ann@example.org") && page.html.contains("gpuaas-cli"), "{}", page.html);
    assert_eq!(kit.count("SELECT count(*) FROM issuer_codes").await, 0);

    let page = kit.authorize(&mut browser, url.clone(), "cancel").await;
    assert_eq!(param(&page.url, "error").as_deref(), Some("access_denied"));
    assert_eq!((param(&page.url, "code"), param(&page.url, "state").as_deref()), (None, Some("st")));
    let silent = kit.authorize_url(&challenge, &[("prompt", "none")]);
    let page = browser.open(silent, Some(CALLBACK)).await;
    assert_eq!(param(&page.url, "error").as_deref(), Some("interaction_required"));

    // A form that was not rendered for this browser, and tags that we did not make.
    let page = browser.open(url.clone(), Some(CALLBACK)).await;
    let forged = [("decision", "continue"), ("form_token", "AAAA")];
    let page = browser.submit(&page, "/auth/authorize", &forged, Some(CALLBACK)).await;
    assert_eq!(page.status, 400);
    for tag in ["", "1", "AAAA"] {
        let url = kit.authorize_url(&challenge, &[("signed_in", tag)]);
        assert_eq!(browser.open(url, Some(CALLBACK)).await.url.path(), "/auth/authorize");
    }
    assert_eq!(kit.count("SELECT count(*) FROM issuer_codes").await, 0);

    // Whoever types the password for this very request is not asked again; for another one they are.
    let fresh = kit.authorize_url(&challenge, &[("prompt", "login")]);
    let page = browser.open(fresh, Some(CALLBACK)).await;
    let fields = [("email", "ann@example.org"), ("password", crate::kit::PASSWORD)];
    let page = browser.submit(&page, "/auth/login", &fields, Some(CALLBACK)).await;
    assert!(param(&page.url, "code").is_some(), "{}", page.html);
    let page = browser.open(url, Some(CALLBACK)).await;
    assert_eq!(page.url.path(), "/auth/authorize");
}

#[tokio::test]
async fn the_console_which_only_its_own_address_can_be_needs_no_confirmation() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let console = format!("{}/console/callback", kit.base);
    let more = [("client_id", "gpuaas-console"), ("redirect_uri", console.as_str())];
    let page = browser.open(kit.authorize_url(&pkce("x").1, &more), Some(&console)).await;
    assert!(param(&page.url, "code").is_some(), "{}", page.html);
}

#[tokio::test]
async fn a_wrong_verifier_is_refused_and_burns_the_code() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let (code, verifier) = kit.code(&mut browser, "right").await;
    let (wrong, _) = pkce("wrong");
    for attempt in [&wrong, &verifier] {
        let (status, answer) = kit.exchange(&code, attempt).await;
        assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")));
    }
    assert_eq!(kit.count("SELECT count(*) FROM account_sessions").await, 0);
}

#[tokio::test]
async fn a_code_used_twice_revokes_the_session_it_made() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let (code, verifier) = kit.code(&mut browser, "x").await;
    let (_, tokens) = kit.exchange(&code, &verifier).await;
    assert!(kit.who(&tokens["access_token"]).await.is_ok());
    let (status, answer) = kit.exchange(&code, &verifier).await;
    assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")));
    assert_eq!(kit.who(&tokens["access_token"]).await.unwrap_err(), Code::TokenRevoked);
    assert_eq!(kit.refresh(&tokens["refresh_token"]).await.0, 400);
}

#[tokio::test]
async fn a_code_is_good_for_one_minute() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let (code, verifier) = kit.code(&mut browser, "x").await;
    kit.advance(60);
    assert_eq!(kit.exchange(&code, &verifier).await.1["error"], "invalid_grant");
}

#[tokio::test]
async fn of_concurrent_exchanges_of_one_code_at_most_one_succeeds() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let (code, verifier) = kit.code(&mut browser, "x").await;
    let exchanges = (0..8).map(|_| kit.exchange(&code, &verifier));
    let answers = futures_util::future::join_all(exchanges).await;
    assert_eq!(answers.iter().filter(|(status, _)| *status == 200).count(), 1);
    assert_eq!(kit.count("SELECT count(*) FROM account_sessions").await, 1);
}

#[tokio::test]
async fn nothing_is_sent_to_an_address_that_is_not_the_clients() {
    let kit = Kit::start().await;
    let (_, challenge) = pkce("x");
    for (name, value) in [
        ("redirect_uri", "https://evil.example/callback"),
        ("redirect_uri", "http://127.0.0.1:9/other"),
        ("client_id", "somebody-else"),
        ("client_id", "gpuaas-console"),
    ] {
        let page =
            Browser::default().open(kit.authorize_url(&challenge, &[(name, value)]), Some(CALLBACK)).await;
        assert_eq!((page.status, page.url.path()), (400, "/auth/authorize"), "{name}={value}");
    }
}

#[tokio::test]
async fn a_request_without_pkce_s256_is_answered_with_an_error() {
    let kit = Kit::start().await;
    let (verifier, challenge) = pkce("x");
    for (more, expected) in [
        (vec![("code_challenge", "")], "invalid_request"),
        (vec![("code_challenge", verifier.as_str()), ("code_challenge_method", "plain")], "invalid_request"),
        (vec![("code_challenge_method", "")], "invalid_request"),
        (vec![("response_type", "token")], "unsupported_response_type"),
        (vec![("prompt", "none")], "login_required"),
    ] {
        let page = Browser::default().open(kit.authorize_url(&challenge, &more), Some(CALLBACK)).await;
        assert_eq!(param(&page.url, "error").as_deref(), Some(expected), "{more:?}");
        assert_eq!(param(&page.url, "state").as_deref(), Some("st"));
        assert_eq!(param(&page.url, "code"), None);
    }
}

#[tokio::test]
async fn another_redirect_or_client_at_the_token_endpoint_is_refused() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    for (client, redirect) in [("gpuaas-console", CALLBACK), ("gpuaas-cli", "http://127.0.0.1:8/callback")] {
        let (code, verifier) = kit.code(&mut browser, "x").await;
        let form = [
            ("grant_type", "authorization_code"),
            ("client_id", client),
            ("redirect_uri", redirect),
            ("code", &code),
            ("code_verifier", &verifier),
        ];
        let (status, answer) = kit.post("/auth/token", &form).await;
        assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")), "{client} {redirect}");
    }
    let (status, answer) =
        kit.post("/auth/token", &[("grant_type", "password"), ("client_id", "gpuaas-cli")]).await;
    assert_eq!((status, &answer["error"]), (400, &json!("unsupported_grant_type")));
    let (status, answer) =
        kit.post("/auth/token", &[("grant_type", "refresh_token"), ("client_id", "nobody")]).await;
    assert_eq!((status, &answer["error"]), (401, &json!("invalid_client")));
}

#[tokio::test]
async fn refresh_tokens_rotate_and_one_that_comes_back_ends_the_session_and_the_browsers_sign_in() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let first = kit.tokens(&mut browser, "x").await;
    let (status, second) = kit.refresh(&first["refresh_token"]).await;
    assert_eq!(status, 200, "{second}");
    assert_ne!(first["refresh_token"], second["refresh_token"]);
    assert_eq!(claims(&first["access_token"])["sid"], claims(&second["access_token"])["sid"]);
    assert!(kit.who(&second["access_token"]).await.is_ok());

    let (status, answer) = kit.refresh(&first["refresh_token"]).await;
    assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")));
    assert_eq!(kit.who(&second["access_token"]).await.unwrap_err(), Code::TokenRevoked);
    assert_eq!(kit.refresh(&second["refresh_token"]).await.0, 400, "the thief's token ends with it");
    let page = browser.open(kit.authorize_url(&pkce("y").1, &[]), Some(CALLBACK)).await;
    assert_eq!(page.url.path(), "/auth/login");
}

#[tokio::test]
async fn a_session_ends_after_thirty_days_however_often_it_is_refreshed() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let mut tokens = kit.tokens(&mut browser, "x").await;
    for _ in 0..2 {
        kit.advance(14 * 86_400);
        let (status, next) = kit.refresh(&tokens["refresh_token"]).await;
        assert_eq!(status, 200, "{next}");
        tokens = next;
    }
    kit.advance(2 * 86_400);
    assert_eq!(kit.refresh(&tokens["refresh_token"]).await.0, 400);
}

#[tokio::test]
async fn revoking_either_token_ends_the_session() {
    let kit = Kit::start().await;
    for kind in ["access_token", "refresh_token"] {
        let mut browser = Browser::default();
        kit.sign_up(&mut browser, &format!("{kind}@example.org")).await;
        let tokens = kit.tokens(&mut browser, kind).await;
        assert!(kit.who(&tokens["access_token"]).await.is_ok());
        let (status, _) = kit.post("/auth/revoke", &[("token", tokens[kind].as_str().unwrap())]).await;
        assert_eq!(status, 200);
        assert_eq!(kit.who(&tokens["access_token"]).await.unwrap_err(), Code::TokenRevoked, "{kind}");
        assert_eq!(kit.refresh(&tokens["refresh_token"]).await.0, 400);
    }
    assert_eq!(kit.post("/auth/revoke", &[("token", "nonsense")]).await.0, 200);
}

#[tokio::test]
async fn parameters_that_mean_nothing_here_are_ignored() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    for (name, value) in [("resource", "https://elsewhere.example"), ("audience", "elsewhere")] {
        let (verifier, challenge) = pkce(name);
        let url = kit.authorize_url(&challenge, &[(name, value)]);
        let page = kit.authorize(&mut browser, url, "continue").await;
        let code = param(&page.url, "code").unwrap();
        let form = [
            ("grant_type", "authorization_code"),
            ("client_id", "gpuaas-cli"),
            ("redirect_uri", CALLBACK),
            ("code", &code),
            ("code_verifier", &verifier),
            (name, value),
        ];
        let (status, tokens) = kit.post("/auth/token", &form).await;
        assert_eq!((status, &claims(&tokens["access_token"])["aud"]), (200, &json!("gpuaas")), "{tokens}");
        let refresh = tokens["refresh_token"].as_str().unwrap();
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", "gpuaas-cli"),
            ("refresh_token", refresh),
            (name, value),
        ];
        assert_eq!(kit.post("/auth/token", &form).await.0, 200);
        let form = [("client_id", "gpuaas-cli"), ("scope", "openid"), (name, value)];
        assert_eq!(kit.post("/auth/device_authorization", &form).await.0, 200);
    }
}

/// Acts as the API does for the person and session of a token.
async fn sign_out_everywhere_else(kit: &Kit, token: &serde_json::Value) {
    let Caller::User { id, session, .. } = kit.who(token).await.unwrap() else { panic!("a person") };
    let actor = pg::Actor { kind: pg::ActorKind::User, id: Some(id.uuid()), role: "person" };
    let granted = kernel::Role::Person.permissions().authorize(kernel::Permission::SessionRevoke).unwrap();
    let origin = pg::Origin::internal(kernel::CorrelationId(kit.db.db.ambient().uuid()));
    let permit = pg::Permit::granted(actor, pg::Scope::Person, origin, granted);
    let mut tx = kit.db.db.write(permit, "session.revoke_others").await.unwrap();
    identity::service::sessions::session_revoke_others(&mut tx, id, session, &kit.base).await.unwrap();
    tx.commit(None).await.unwrap();
}

#[tokio::test]
async fn signing_out_everywhere_else_ends_other_browsers_and_what_was_begun_in_them() {
    let kit = Kit::start().await;
    let (mut here, mut there) = (Browser::default(), Browser::default());
    kit.sign_up(&mut here, "ann@example.org").await;
    kit.sign_in(&mut there, "ann@example.org", crate::kit::PASSWORD).await;
    let mut stranger = Browser::default();
    kit.sign_up(&mut stranger, "bob@example.org").await;
    let tokens = kit.tokens(&mut here, "here").await;
    let (code, verifier) = kit.code(&mut there, "there").await;

    sign_out_everywhere_else(&kit, &tokens["access_token"]).await;
    let device =
        async |browser: &mut Browser| browser.open(kit.url("/auth/device"), None).await.url.path().to_owned();
    assert_eq!(device(&mut there).await, "/auth/login", "the other browser is signed out");
    let (status, answer) = kit.exchange(&code, &verifier).await;
    assert_eq!(
        (status, &answer["error"]),
        (400, &json!("invalid_grant")),
        "a code that it had got is worth nothing"
    );
    assert_eq!(device(&mut here).await, "/auth/device", "the browser of the session that asked is not");
    assert_eq!(kit.refresh(&tokens["refresh_token"]).await.0, 200);
    assert_eq!(device(&mut stranger).await, "/auth/device", "nor is anybody else");
}
