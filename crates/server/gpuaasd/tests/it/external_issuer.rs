//! Sign-in at an independent OpenID provider, verified by the API through the same path as the built-in one.

use std::{process::Stdio, time::Duration};

use serde_json::Value;
use testkit::{Api, Browser, Server, ServerOptions, TestDb, eventually_within, free_port, pkce};
use url::Url;

use crate::tools::{self, Background};

const AUDIENCE: &str = "urn:gpuaas:api";

/// Authorization code with PKCE at `issuer`, as the CLI does it, with a person who types a name.
async fn sign_in(issuer: &str, name: &str) -> Value {
    let http = Api::new("", None);
    let discovery = http.get(&format!("{issuer}/.well-known/openid-configuration")).await.expect(200);
    let callback = "http://127.0.0.1:49152/callback";
    let (verifier, challenge) = pkce(name);
    let mut url = Url::parse(discovery["authorization_endpoint"].as_str().unwrap()).unwrap();
    url.query_pairs_mut().extend_pairs([
        ("client_id", "gpuaas-cli"),
        ("response_type", "code"),
        ("scope", "openid email profile"),
        ("redirect_uri", callback),
        ("state", "s"),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
        ("resource", AUDIENCE),
    ]);
    let mut browser = Browser::default();
    let login = browser.open(url, Some(callback)).await;
    let consent =
        browser.submit(&login, "/interaction", &[("login", name), ("password", "any")], Some(callback)).await;
    let done = browser.submit(&consent, "/interaction", &[], Some(callback)).await;
    let code = done.url.query_pairs().find(|(k, _)| k == "code").expect("a code").1.into_owned();
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", "gpuaas-cli"),
        ("code", &code),
        ("redirect_uri", callback),
        ("code_verifier", &verifier),
        ("resource", AUDIENCE),
    ];
    let request =
        http.request(reqwest::Method::POST, discovery["token_endpoint"].as_str().unwrap()).form(&form);
    http.send(request).await.expect(200)
}

async fn start_provider(port: u16) -> Background {
    let mut command = tools::command("node");
    command
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/oidc_provider.mjs"))
        .args([port.to_string().as_str()])
        .arg(tools::tool("npm/node_modules"))
        .arg(AUDIENCE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let provider = Background(command.spawn().expect("start the provider"));
    let probe = testkit::http_client().timeout(Duration::from_secs(2)).build().unwrap();
    let url = format!("http://127.0.0.1:{port}/.well-known/openid-configuration");
    eventually_within(Duration::from_secs(30), "the provider answers", || async {
        probe.get(&url).send().await.ok().filter(|r| r.status().is_success()).map(|_| ())
    })
    .await;
    provider
}

#[tokio::test]
async fn people_of_an_independent_provider_sign_in_and_keep_working_while_it_is_down() {
    let port = free_port();
    let issuer = format!("http://127.0.0.1:{port}");
    let provider = start_provider(port).await;
    let db = TestDb::create().await;
    let config = format!(
        "[[auth.issuers]]\nissuer = \"{issuer}\"\naudience = \"{AUDIENCE}\"\nclient_id = \"gpuaas-cli\"\n"
    );
    let server = Server::start_with(&db, ServerOptions { config, ..ServerOptions::default() }).await;

    let tokens = sign_in(&issuer, "ada").await;
    let ada = server.api().with_token(tokens["access_token"].as_str().unwrap());
    let me = ada.get("/api/v1/me").await.expect(200);
    let orgs = ada.get("/api/v1/orgs").await.expect(200);
    assert_eq!(orgs["items"][0]["kind"], "personal", "the first sign-in makes a personal organization");
    assert_eq!(ada.get("/api/v1/me").await.expect(200)["id"], me["id"]);

    let grace = sign_in(&issuer, "grace").await;
    drop(provider);
    // Never seen before, and its issuer is gone: the keys are still known.
    let grace = server.api().with_token(grace["access_token"].as_str().unwrap());
    assert_ne!(grace.get("/api/v1/me").await.expect(200)["id"], me["id"]);

    let altered = format!("{}x", tokens["access_token"].as_str().unwrap());
    server.api().with_token(altered).get("/api/v1/me").await.refused(401, "token_invalid");
    // Not for us: an ID token has another audience.
    let id_token = tokens["id_token"].as_str().unwrap();
    server.api().with_token(id_token).get("/api/v1/me").await.refused(401, "token_invalid");
}

#[tokio::test]
async fn forged_expired_and_foreign_tokens_are_refused() {
    let world = testkit::World::start().await;
    let api = world.server.api();
    let now = kernel::Ambient::system().now().timestamp();
    let claims = |extra: Value| world.idp.token_with("ada", "1", extra);
    for (token, code) in [
        (claims(serde_json::json!({ "exp": now - 120 })), "token_expired"),
        (claims(serde_json::json!({ "nbf": now + 600 })), "token_invalid"),
        (claims(serde_json::json!({ "aud": "somebody-else" })), "token_invalid"),
        (claims(serde_json::json!({ "iss": "http://127.0.0.1:1" })), "token_invalid"),
        (claims(serde_json::json!({ "sub": "" })), "token_invalid"),
        (testkit::Idp::start().await.token("ada", "1"), "token_invalid"),
    ] {
        api.with_token(token).get("/api/v1/me").await.refused(401, code);
    }
    let good = serde_json::json!({ "iss": world.idp.issuer, "aud": testkit::AUDIENCE, "sub": "ada", "sid": "x", "iat": now, "exp": now + 60 });
    for alg in ["none", "HS256", "RS256"] {
        let forged = world.idp.sign(&serde_json::json!({ "alg": alg, "kid": "test-1" }), &good);
        api.with_token(forged).get("/api/v1/me").await.refused(401, "token_invalid");
    }
}
