//! The whole OpenAPI document against the running server, by schemathesis: no 5xx, no contract violation.

use std::{collections::BTreeSet, time::Duration};

use testkit::World;

use crate::tools;

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,missing_required_header,unsupported_method,\
                      allow_header_conformance,ignored_auth";

/// A run stays below the ten minutes that the test runner gives these tests, so that our own message is seen.
const LIMIT: Duration = Duration::from_secs(280);

/// Revoking a session would sign the caller out, and everything after it would only be refused.
const SIGNS_OUT: &str = "session_revoke";
/// It has no end: each request would last until the client gives up. The tests of notifications follow it.
const ENDLESS: &str = "notification_stream";

/// The operations of each domain by the tags of the document. `cargo xtask test` leaves out the domains that did not
/// change, unless CI is the caller: it names the tests below by these names.
const IDENTITY: &[&str] = &[
    "accounts",
    "audit",
    "auth",
    "invitations",
    "me",
    "members",
    "orgs",
    "policies",
    "policy-definitions",
    "projects",
    "sensitive-changes",
    "service-accounts",
    "sessions",
    "ssh-keys",
    "users",
    "whoami",
];
const FLEET: &[&str] =
    &["agent-programs", "findings", "health-rules", "nodes", "pools", "regions", "slots", "tasks", "trust"];
const CAPACITY: &[&str] =
    &["allocation-groups", "allocations", "catalog", "discrepancies", "restore", "skus"];
const MONEY: &[&str] = &["billing", "budget", "usage"];
const NOTIFY: &[&str] = &["deliveries", "notification-preferences", "notifications", "webhooks"];
const PLATFORM: &[&str] = &["dead-letters", "outbox", "sagas"];

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

async fn fuzz_domain(tags: &[&str]) {
    let world = world().await;
    let mut selection = vec!["--exclude-operation-id", SIGNS_OUT, "--exclude-operation-id", ENDLESS];
    selection.extend(tags.iter().flat_map(|tag| ["--include-tag", tag]));
    fuzz(&world, world.admin.token.as_deref().unwrap(), &selection).await;
    unharmed(&world).await;
}

#[tokio::test]
async fn identity_has_no_server_error_and_no_contract_violation() {
    fuzz_domain(IDENTITY).await;
}

#[tokio::test]
async fn identity_survives_the_fuzzing_of_signing_out() {
    let world = world().await;
    let ada = world.person("ada").await;
    fuzz(&world, ada.api.token.as_deref().unwrap(), &["--include-operation-id", SIGNS_OUT]).await;
    unharmed(&world).await;
}

#[tokio::test]
async fn fleet_has_no_server_error_and_no_contract_violation() {
    fuzz_domain(FLEET).await;
}

#[tokio::test]
async fn capacity_has_no_server_error_and_no_contract_violation() {
    fuzz_domain(CAPACITY).await;
}

#[tokio::test]
async fn money_has_no_server_error_and_no_contract_violation() {
    fuzz_domain(MONEY).await;
}

#[tokio::test]
async fn notify_has_no_server_error_and_no_contract_violation() {
    fuzz_domain(NOTIFY).await;
}

#[tokio::test]
async fn platform_has_no_server_error_and_no_contract_violation() {
    fuzz_domain(PLATFORM).await;
}

#[test]
fn every_operation_belongs_to_the_fuzzing_of_one_domain() {
    let document: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../openapi/public.json")).unwrap();
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|path| path.as_object().unwrap().values());
    let tags: BTreeSet<&str> = operations.map(|operation| operation["tags"][0].as_str().unwrap()).collect();
    let fuzzed: Vec<&str> = [IDENTITY, FLEET, CAPACITY, MONEY, NOTIFY, PLATFORM].concat();
    let distinct: BTreeSet<&str> = fuzzed.iter().copied().collect();
    assert_eq!(distinct.len(), fuzzed.len(), "a tag belongs to two domains");
    assert_eq!(distinct, tags);
}
