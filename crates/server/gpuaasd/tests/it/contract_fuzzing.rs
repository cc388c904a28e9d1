//! The whole OpenAPI document against the running server, by schemathesis: no 5xx, no contract violation.

use std::time::Duration;

use testkit::World;

use crate::tools;

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,missing_required_header,unsupported_method,\
                      allow_header_conformance,ignored_auth";

/// Two runs stay below the ten minutes that the test runner gives these tests, so that our own message is seen.
const LIMIT: Duration = Duration::from_secs(280);

/// Revoking a session would sign the caller out, and everything after it would only be refused.
const SIGNS_OUT: &str = "session_revoke";
/// It has no end: each request would last until the client gives up. The tests of notifications follow it.
const ENDLESS: &str = "notification_stream";
/// What only operators use, and what is about money: each a third of the document.
const OPERATORS: &str = "^/api/v1/platform/";
const MONEY: &str = "^/api/v1/(orgs/[^/]+/(billing|webhooks)|projects/[^/]+/(usage|budget)|me/notification)";
const NEITHER: &str =
    "^/api/v1/(platform/|orgs/[^/]+/(billing|webhooks)|projects/[^/]+/(usage|budget)|me/notification)";

async fn fuzz(world: &World, token: &str, selection: &[&str]) {
    let mut command = tools::command(tools::tool("venv/bin/schemathesis"));
    command
        .args(["--config-file", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/schemathesis.toml"), "run"])
        .arg(format!("{}/api/v1/openapi.json", world.server.base))
        .args(selection)
        .args(["--checks", CHECKS, "--max-examples", "12", "--seed", "1", "--workers", "1"])
        .args([
            "--phases",
            "examples,coverage,fuzzing",
            "--generation-database",
            "none",
            "--continue-on-failure",
        ])
        .args([
            "--request-timeout",
            "20",
            "--suppress-health-check",
            "all",
            "--warnings",
            "off",
            "--no-color",
        ])
        .arg("--header")
        .arg(format!("Authorization: Bearer {token}"))
        .current_dir(world.server.dir.path());
    let output = tools::run(command, LIMIT).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

async fn world() -> World {
    let world = World::start().await;
    let org = world.org("acme").await;
    world.project(&org, "p").await;
    world
}

/// The server is the same process as before, and still itself.
async fn unharmed(world: &World) {
    // Still signed in: what was asked was answered, not refused.
    world.admin.get("/api/v1/me").await.expect(200);
    assert!(!world.server.log().contains("\"level\":\"ERROR\""), "{}", world.server.log());
}

#[tokio::test]
async fn schemathesis_finds_no_server_error_and_no_contract_violation() {
    let world = world().await;
    let everybodys = ["--exclude-operation-id", SIGNS_OUT, "--exclude-path-regex", NEITHER];
    fuzz(&world, world.admin.token.as_deref().unwrap(), &everybodys).await;
    unharmed(&world).await;
    let ada = world.person("ada").await;
    fuzz(&world, ada.api.token.as_deref().unwrap(), &["--include-operation-id", SIGNS_OUT]).await;
    unharmed(&world).await;
}

#[tokio::test]
async fn schemathesis_finds_none_in_what_operators_use_either() {
    let world = world().await;
    fuzz(&world, world.admin.token.as_deref().unwrap(), &["--include-path-regex", OPERATORS]).await;
    unharmed(&world).await;
}

#[tokio::test]
async fn schemathesis_finds_none_in_what_is_about_money_either() {
    let world = world().await;
    let money = ["--include-path-regex", MONEY, "--exclude-operation-id", ENDLESS];
    fuzz(&world, world.admin.token.as_deref().unwrap(), &money).await;
    unharmed(&world).await;
}
