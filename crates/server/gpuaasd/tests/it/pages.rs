//! What a person meets who opens addresses of the server in a browser: pages, never JSON. Programs get JSON.

use reqwest::Method;
use serde_json::Value;
use testkit::{Answer, Api, World};

const CHROME: &str =
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8";

async fn fetched(api: &Api, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request = headers
        .iter()
        .fold(api.request(Method::GET, path), |request, (name, value)| request.header(*name, *value));
    api.send(request).await
}

fn content_type(answer: &Answer) -> &str {
    answer.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// A whole page in our look that loads nothing.
fn check_page(path: &str, answer: &Answer) {
    assert_eq!(content_type(answer), "text/html; charset=utf-8", "{path}: {}", answer.text);
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{path}: {policy}");
    assert!(answer.text.starts_with("<!doctype html>") && answer.text.contains("<main"), "{path}");
    for loading in ["<script", "src=", "@import", "url(", "<link"] {
        assert!(!answer.text.contains(loading), "{path}: {loading}: {}", answer.text);
    }
    assert!(
        !answer.text.contains("{&quot;error&quot;") && !answer.text.contains("{\"error\""),
        "{path}: {}",
        answer.text
    );
}

/// Every path that the API document names, with something in its places.
async fn paths(world: &World) -> Vec<String> {
    let document = world.server.api().get("/api/v1/openapi.json").await.expect(200);
    let filled = |path: &String| {
        let parts: Vec<&str> =
            path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect();
        parts.join("/")
    };
    let mut paths: Vec<String> = document["paths"].as_object().unwrap().keys().map(filled).collect();
    assert!(paths.len() > 100, "{}", paths.len());
    let others = [
        "/nothing",
        "/api",
        "/api/v1",
        "/api/v1/openapi.json",
        "/auth/jwks",
        "/auth/userinfo",
        "/auth/token",
        "/auth/nothing",
        "/auth/revoke",
        "/auth/device_authorization",
        "/auth/authorize",
        "/auth/authorize?client_id=1&client_id=2",
        "/auth/login?continue=%00",
        "/auth/invitation",
        "/.well-known/openid-configuration",
        "/webhooks/payments",
        "/readyz",
        "/healthz",
        "/install/programs/x",
        "/billing/topups/x",
        "/billing/topups/topup_0193b3a0000070008000000000000001",
        "/favicon.ico",
        "/%ff",
        "/api/v1/orgs/%ff/projects",
        "/?x=1",
    ];
    paths.extend(others.map(str::to_owned));
    paths
}

#[tokio::test]
async fn no_navigation_of_a_browser_ends_on_json_and_programs_get_json_as_before() {
    let world = World::start().await;
    let api = world.server.api();
    for path in paths(&world).await {
        let seen = fetched(&api, &path, &[("accept", CHROME)]).await;
        check_page(&path, &seen);
        let plain = fetched(&api, &path, &[("accept", "*/*")]).await;
        assert_eq!(seen.status, plain.status, "{path}");
        let is_page = content_type(&plain).starts_with("text/html");
        for headers in
            [&[][..], &[("accept", "application/json")], &[("accept", CHROME), ("sec-fetch-mode", "cors")]]
        {
            let program = fetched(&api, &path, headers).await;
            assert_eq!(
                (program.status, content_type(&program)),
                (plain.status, content_type(&plain)),
                "{path} {headers:?}"
            );
            if path.starts_with("/api/") {
                assert!(!is_page && program.body.is_object(), "{path}: {}", program.text);
            }
        }
        if seen.status >= 400 && !is_page && plain.body["error"]["code"].is_string() {
            let error = &plain.body["error"];
            assert!(seen.text.contains(error["code"].as_str().unwrap()), "{path}: {}", seen.text);
        }
    }
}

#[tokio::test]
async fn a_program_that_asks_for_html_with_a_token_reads_its_errors_as_json() {
    let world = World::start().await;
    let refused = fetched(&world.admin, "/api/v1/nothing", &[("accept", "text/html")]).await;
    refused.refused(404, "not_found");
    let me = fetched(&world.admin, "/api/v1/me", &[("accept", "text/html")]).await.expect(200);
    assert!(me.is_object());
}

#[tokio::test]
async fn the_operations_listener_shows_pages_to_people() {
    let world = World::start().await;
    let ops = Api::new(&world.server.ops, None);
    check_page("/readyz", &fetched(&ops, "/readyz", &[("accept", CHROME)]).await);
    check_page("/nothing", &fetched(&ops, "/nothing", &[("accept", CHROME)]).await);
    let report = ops.get("/readyz").await.expect(200);
    assert_eq!(report["status"], "ready");
    let metrics = fetched(&ops, "/metrics", &[("accept", CHROME)]).await;
    assert!(
        content_type(&metrics).starts_with("text/plain") && metrics.text.contains("# TYPE"),
        "{}",
        metrics.text
    );
}

#[tokio::test]
async fn the_home_page_says_how_to_sign_in_what_comes_next_and_whether_it_works() {
    let world = World::start().await;
    let mut request = world.server.api().request(Method::GET, "/");
    // Nobody chooses by a header what others are told to sign in to.
    request = request.header("host", "evil.example").header("x-forwarded-host", "evil.example");
    let home = world.server.api().send(request).await;
    assert_eq!(home.status, 200);
    check_page("/", &home);
    assert!(!home.text.contains("evil.example"), "{}", home.text);
    let login = format!("gpuaas auth login --server {}", world.server.base);
    let version = env!("CARGO_PKG_VERSION");
    for part in [
        login.as_str(),
        "The service is ready.",
        version,
        "/api/v1/openapi.json",
        "/auth/login",
        "gpuaas ssh first",
    ] {
        assert!(home.text.contains(part), "{part}: {}", home.text);
    }
    let document = world.server.api().get("/api/v1/openapi.json").await.expect(200);
    assert_eq!(document["info"]["version"], Value::from(version));
}
