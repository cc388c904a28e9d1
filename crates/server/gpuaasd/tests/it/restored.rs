//! Restored from backup: the records are older than what runs on the nodes. Noticed by itself, compared with the nodes,
//! settled by an operator; until then nothing is placed, released or charged.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use testkit::{
    Api, Browser, NodeClient, Server, ServerOptions, Tenant, World, eventually_within, program, sign_in,
    sign_in_first_admin,
};

use crate::tools::command;

const PATIENCE: Duration = Duration::from_secs(60);
const STATUS: &str = "/api/v1/platform/restore";
const DIFFERENCES: &str = "/api/v1/platform/restore/differences";
const RESUME: &str = "/api/v1/platform/restore/resume";

fn slice() -> Value {
    json!({ "sku": "h200-sxm-slice", "gpus": 1 })
}

async fn restart(server: &mut Server) {
    server.spawn();
    server.ready().await;
}

async fn stop(server: &mut Server) {
    assert_eq!(server.stop().await, Some(0), "{}", server.log());
}

async fn mode(admin: &Api) -> String {
    admin.get(STATUS).await.expect(200)["mode"].as_str().expect("a mode").to_owned()
}

/// Everything that was signed in was ended by the restore; the administrator signs in again.
fn sign_in_again(world: &mut World) {
    world.admin = world.server.api().with_token(world.idp.token("root", "again"));
}

/// What the alert about the mode is made of, in every process.
async fn alerted(servers: &[&Server], value: u8) {
    for server in servers {
        let ops = Api::new(&server.ops, None);
        eventually_within(PATIENCE, "the gauge follows the mode", || async {
            let metrics = ops.get("/metrics").await.text;
            metrics.contains(&format!("\ninstallation_restore_mode {value}\n")).then_some(())
        })
        .await;
    }
}

/// Goes on, as soon as everything was compared.
async fn resume(admin: &Api) {
    eventually_within(PATIENCE, "what differs is settled", || async {
        let resumed = admin.post(RESUME, json!({})).await;
        (resumed.status == 200).then_some(())
    })
    .await;
}

fn uuid(id: &str) -> &str {
    id.trim_start_matches("alloc_")
}

async fn uid(world: &World, id: &str) -> i64 {
    world.count(&format!("SELECT uid::bigint FROM allocations WHERE id = '{}'", uuid(id))).await
}

async fn charged(world: &World) -> i64 {
    world.count("SELECT (SELECT count(*) FROM ledger_postings) + (SELECT count(*) FROM usage_records)").await
}

/// The difference of this kind about the allocation, when it was found.
async fn difference(admin: &Api, kind: &str, allocation: &str) -> Value {
    eventually_within(PATIENCE, &format!("{kind} of {allocation}"), || async {
        let listed = admin.get(DIFFERENCES).await.expect(200);
        let items = listed["items"].as_array().expect("differences").clone();
        items.into_iter().find(|d| d["kind"] == kind && d["allocation_id"] == allocation)
    })
    .await
}

async fn settle(admin: &Api, difference: &Value, decision: &str) -> testkit::Answer {
    let path = format!("{DIFFERENCES}/{}/settle", difference["id"].as_str().expect("an id"));
    admin.post(&path, json!({ "decision": decision, "note": "looked at it" })).await
}

/// Nothing that people or jobs may ask for places, releases or charges.
async fn work_is_refused(world: &World, tenant: &Tenant, running: &str) {
    let refusal = tenant.request(slice()).await.refused(503, "restore_pending");
    let suggestion = refusal["error"]["suggestion"].as_str().expect("a suggestion");
    assert!(suggestion.contains("gpuaas ops restore"), "{refusal}");
    tenant.act(running, "release").await.refused(503, "restore_pending");
    let path = format!("/api/v1/platform/allocations/{running}/force-release");
    world.admin.post(&path, json!({ "reason": "tidy up" })).await.refused(503, "restore_pending");
}

#[tokio::test]
async fn a_restored_database_is_noticed_compared_with_the_nodes_and_settled_before_anything_goes_on() {
    let mut world = World::start_simulated().await;
    world.db.set_global_policy("billing.window_seconds", "10").await;
    world.db.set_global_policy("fleet.heartbeat_seconds", "1").await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let mut tenant = world.tenant("ada").await;
    let (kept, gone) = (tenant.active(slice()).await, tenant.active(slice()).await);
    let created = world.created_node("gpu-revoked").await;
    let revoked = world.enrolled_node(&created).await;
    let mut repaired = world.created_node("gpu-repaired").await;
    let superseded = world.enrolled_node(&repaired).await;
    assert_eq!(mode(&world.admin).await, "normal");

    stop(&mut world.server).await;
    let backup = world.db.back_up().await;
    restart(&mut world.server).await;
    // Before the release, so that it stands on devices of its own.
    let unknown = tenant.active(slice()).await;
    tenant.release(&gone).await;
    let highest = uid(&world, &unknown).await;
    let path = format!("/api/v1/platform/nodes/{}/certificates/revoke", created.id);
    world.admin.post(&path, json!({ "reason": "the key was stolen" })).await.expect(200);
    let path = format!("/api/v1/platform/nodes/{}/repair-token", repaired.id);
    let token = world.admin.post(&path, json!({})).await.expect(201);
    repaired.token = token["token"].as_str().expect("a token").to_owned();
    let given_since = world.enrolled_node(&repaired).await;
    stop(&mut world.server).await;
    world.db.restore(backup).await;
    restart(&mut world.server).await;
    tenant.api().get("/api/v1/me").await.refused(401, "token_revoked");
    sign_in_again(&mut world);
    tenant.person.api = world.server.api().with_token(world.idp.token("ada", "again"));

    // Noticed, and held.
    let status = world.admin.get(STATUS).await.expect(200);
    assert_eq!(status["mode"], "restore", "{status}");
    assert!(status["because"].as_str().is_some_and(|because| because.contains("generation")), "{status}");
    let before = charged(&world).await;
    work_is_refused(&world, &tenant, &kept).await;

    // Compared.
    let unknown_there = difference(&world.admin, "unknown_on_node", &unknown).await;
    let missing_there = difference(&world.admin, "missing_on_node", &gone).await;
    let refused = world.admin.post(RESUME, json!({})).await.refused(409, "invalid_transition");
    assert!(refused["error"]["suggestion"].as_str().is_some_and(|s| s.contains("restore")), "{refused}");
    assert_eq!(mode(&world.admin).await, "restore");

    // What was revoked since the backup stays revoked and what was given since is known, although the backup knows
    // neither.
    given_since.api.post(&given_since.path("heartbeat"), NodeClient::heartbeat()).await.expect(200);
    for gone in [&revoked, &superseded] {
        let answer = gone.api.post(&gone.path("heartbeat"), NodeClient::heartbeat()).await;
        assert!(matches!(answer.status, 401 | 403), "{}", answer.text);
    }

    // Settled.
    settle(&world.admin, &unknown_there, "end").await.refused(400, "validation_error");
    settle(&world.admin, &unknown_there, "cordon").await.expect(200);
    settle(&world.admin, &missing_there, "end").await.expect(200);
    let listed = world.admin.get(DIFFERENCES).await.expect(200);
    for other in listed["items"].as_array().expect("differences").iter().filter(|d| d["decision"].is_null()) {
        settle(&world.admin, other, "keep").await.expect(200);
    }
    assert_eq!(charged(&world).await, before, "nothing is charged until somebody resumes");
    assert_eq!(tenant.state(&gone).await, "active");
    let restored_at = status["restored_at"].as_str().expect("a time").to_owned();
    // A report may bring another difference in this moment.
    resume(&world.admin).await;

    // Goes on: what was gone is released and paid for until the backup, the rest runs and is charged.
    assert_eq!(mode(&world.admin).await, "normal");
    world.admin.post(RESUME, json!({})).await.refused(409, "invalid_transition");
    tenant.until_within(PATIENCE, &gone, &["released"]).await;
    let late = format!(
        "SELECT count(*) FROM meters WHERE allocation_id = '{}' AND closed_at >= '{restored_at}'",
        uuid(&gone)
    );
    assert_eq!(world.count(&late).await, 0, "nobody pays for what was gone");
    assert_eq!(tenant.state(&kept).await, "active");
    eventually_within(PATIENCE, "what runs is charged again", || async {
        (charged(&world).await > before).then_some(())
    })
    .await;

    // Nothing is placed on the node that has more than the records say; afterwards no unix id comes a second time.
    assert!(tenant.request(slice()).await.status >= 400);
    let uncordon = format!("/api/v1/platform/nodes/{}/uncordon", nodes.ids[0]);
    world.admin.post(&uncordon, json!({})).await.expect(200);
    let next = tenant.launch(slice()).await;
    assert!(uid(&world, &next).await > highest);
}

async fn sign_in_admin_again(server: &Server) -> Api {
    let tokens = sign_in(&server.base, "admin@localhost", testkit::NEW_PASSWORD).await;
    server.api().with_token(tokens["access_token"].as_str().expect("a token"))
}

/// The directory of the built-in database, for which the server is stopped.
fn copy(from: &Path, to: &Path) {
    let copied = command("cp").arg("-a").arg(from).arg(to).status().expect("cp");
    assert!(copied.success());
}

#[tokio::test]
async fn the_built_in_database_is_compared_with_the_file_beside_it() {
    let mut server = Server::start_on("", ServerOptions::default()).await;
    let data = server.dir.path().join("data");
    let admin = sign_in_first_admin(&server.base, &data).await;
    assert_eq!(mode(&admin).await, "normal");
    let (cluster, backup) = (data.join("postgres"), data.join("postgres-backup"));
    let file = data.join("secrets/generation.json");

    // Killed between the two writes, or at any other time, is no restore; nor is a file that was lost.
    server.kill();
    restart(&mut server).await;
    assert_eq!(mode(&admin).await, "normal");
    stop(&mut server).await;
    std::fs::remove_file(&file).expect("remove the file");
    copy(&cluster, &backup);
    restart(&mut server).await;
    assert_eq!(mode(&admin).await, "normal");
    assert!(server.log().contains("there is no generation file"), "{}", server.log());
    stop(&mut server).await;

    // The cluster of before.
    std::fs::remove_dir_all(&cluster).expect("remove the cluster");
    std::fs::rename(&backup, &cluster).expect("put the copy in its place");
    restart(&mut server).await;
    admin.get(STATUS).await.refused(401, "token_revoked");
    let admin = sign_in_admin_again(&server).await;
    assert_eq!(mode(&admin).await, "restore");
    // It stays so over restarts, until somebody resumes.
    stop(&mut server).await;
    restart(&mut server).await;
    assert_eq!(mode(&admin).await, "restore");
    resume(&admin).await;
    assert_eq!(mode(&admin).await, "normal");
    stop(&mut server).await;

    // Whoever restored the file too says so.
    let said = command(program("gpuaasd"))
        .arg("--config")
        .arg(server.dir.path().join("gpuaas.toml"))
        .arg("restore")
        .output()
        .expect("run gpuaasd restore");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    restart(&mut server).await;
    admin.get(STATUS).await.refused(401, "token_revoked");
    let admin = sign_in_admin_again(&server).await;
    assert_eq!(mode(&admin).await, "restore");
    stop(&mut server).await;

    // A file of another installation is no evidence; it is refused with what to do.
    let text = std::fs::read_to_string(&file).expect("the file");
    let mut outside: Value = serde_json::from_str(&text).expect("JSON");
    outside["installation"] = json!("0193b3a0-1111-7000-8000-000000000001");
    std::fs::write(&file, outside.to_string()).expect("write the file");
    server.spawn();
    eventually_within(PATIENCE, "it says what is wrong", || async {
        server.log().contains("delete the file").then_some(())
    })
    .await;
    assert_eq!(server.stop().await, Some(1), "{}", server.log());
}

#[tokio::test]
async fn a_process_notices_a_database_that_goes_back_while_it_runs_and_others_follow() {
    let mut world = World::start().await;
    let other = world.replica().await;
    assert_eq!(mode(&world.admin).await, "normal");
    // As a standby that took over and had not got everything.
    world.db.sql("UPDATE installation SET generation = 0").await;
    eventually_within(PATIENCE, "what was signed in is ended", || async {
        let answers = [world.admin.get(STATUS).await, world.admin.at(&other.base).get(STATUS).await];
        answers.iter().all(|answer| answer.status == 401).then_some(())
    })
    .await;
    sign_in_again(&mut world);
    for base in [&world.server.base, &other.base] {
        eventually_within(PATIENCE, "it is noticed", || async {
            (mode(&world.admin.at(base)).await == "restore").then_some(())
        })
        .await;
    }
    alerted(&[&world.server, &other], 1).await;
    resume(&world.admin).await;
    assert_eq!(mode(&world.admin.at(&other.base)).await, "normal");
    alerted(&[&world.server, &other], 0).await;
}

#[tokio::test]
async fn what_was_signed_in_before_a_restore_or_revoked_since_the_backup_is_ended_by_it() {
    let mut world = World::start().await;
    let email = "dee@example.org";
    let made = world.admin.post("/api/v1/platform/accounts", json!({ "email": email })).await.expect(201);
    let password = made["one_time_password"].as_str().expect("a password").to_owned();
    let tokens = sign_in(&world.server.base, email, &password).await;
    let dee = world.server.api().with_token(tokens["access_token"].as_str().expect("a token"));
    dee.get("/api/v1/me").await.expect(200);
    let mut browser = Browser::default();
    let page_of = |base: &str, path: &str| url::Url::parse(&format!("{base}{path}")).expect("a URL");
    let base = world.server.base.clone();
    let page = browser.open(page_of(&base, "/auth/login?continue=/auth/device"), None).await;
    let fields = [("email", email), ("password", testkit::NEW_PASSWORD)];
    let page = browser.submit(&page, "/auth/login", &fields, None).await;
    assert_eq!(page.url.path(), "/auth/device");
    let device = world.server.api();
    let form = device.request(reqwest::Method::POST, "/auth/device_authorization");
    device.send(form.form(&[("client_id", "gpuaas-cli"), ("scope", "openid")])).await.expect(200);
    stop(&mut world.server).await;
    let backup = world.db.back_up().await;
    restart(&mut world.server).await;
    // Since the backup: she is signed out everywhere, and somebody of another issuer signs in and is signed out.
    let sessions = dee.get("/api/v1/me/sessions").await.expect(200);
    for session in sessions["items"].as_array().expect("sessions") {
        let path = format!("/api/v1/me/sessions/{}", session["id"].as_str().expect("an id"));
        assert!(dee.delete(&path).await.status < 500);
    }
    let later = world.server.api().with_token(world.idp.token("eve", "since"));
    let sessions = later.get("/api/v1/me/sessions").await.expect(200);
    let path = format!("/api/v1/me/sessions/{}", sessions["items"][0]["id"].as_str().expect("an id"));
    later.delete(&path).await.expect(204);
    stop(&mut world.server).await;
    world.db.restore(backup).await;
    // Tokens have whole seconds: the restore is noticed in a later one than these were made in.
    let made_at = world.count("SELECT extract(epoch FROM clock_timestamp())::bigint").await;
    eventually_within(PATIENCE, "the next second", || async {
        (world.count("SELECT extract(epoch FROM clock_timestamp())::bigint").await > made_at + 1)
            .then_some(())
    })
    .await;
    restart(&mut world.server).await;

    dee.get("/api/v1/me").await.refused(401, "token_revoked");
    later.get("/api/v1/me").await.refused(401, "token_revoked");
    world.admin.get(STATUS).await.refused(401, "token_revoked");
    let api = world.server.api();
    let refresh = tokens["refresh_token"].as_str().expect("a refresh token");
    let form = [("grant_type", "refresh_token"), ("client_id", "gpuaas-cli"), ("refresh_token", refresh)];
    let answer = api.send(api.request(reqwest::Method::POST, "/auth/token").form(&form)).await;
    assert_eq!((answer.status, answer.code()), (400, ""), "{}", answer.text);
    assert!(answer.text.contains("invalid_grant"), "{}", answer.text);
    let page = browser.open(page_of(&base, "/auth/device"), None).await;
    assert_eq!(page.url.path(), "/auth/login", "the browser is signed out");
    for table in ["issuer_browser_sessions", "issuer_refresh_tokens", "issuer_codes", "issuer_device_codes"] {
        assert_eq!(world.count(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    let audited = "SELECT count(*) FROM audit_logs WHERE action = 'installation.restore_begin'";
    assert_eq!(world.count(audited).await, 1);

    // Everybody can sign in again, and is not ended a second time by a restart.
    let tokens = sign_in(&base, email, testkit::NEW_PASSWORD).await;
    let dee = world.server.api().with_token(tokens["access_token"].as_str().expect("a token"));
    let later = world.server.api().with_token(world.idp.token("eve", "again"));
    stop(&mut world.server).await;
    restart(&mut world.server).await;
    dee.get("/api/v1/me").await.expect(200);
    later.get("/api/v1/me").await.expect(200);
    sign_in_again(&mut world);
    assert_eq!(mode(&world.admin).await, "restore");
    resume(&world.admin).await;
    dee.get("/api/v1/me").await.expect(200);
}
