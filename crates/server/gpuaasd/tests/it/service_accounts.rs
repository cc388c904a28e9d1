//! Service accounts with roles: what a reader and a launcher may do, within which limit, and what ends it.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Answer, Api, Tenant, World, eventually_within, invariants, made_up_key};

struct Machine {
    id: String,
    key_id: String,
    api: Api,
}

fn accounts(tenant: &Tenant) -> String {
    format!("/api/v1/projects/{}/service-accounts", tenant.project)
}

async fn machine(world: &World, tenant: &Tenant, body: Value) -> Machine {
    let made = tenant.api().post(&accounts(tenant), body).await.expect(201);
    let id = made["id"].as_str().unwrap().to_owned();
    let key = tenant.api().post(&format!("{}/{id}/keys", accounts(tenant)), json!({})).await.expect(201);
    let (key_id, secret) = (key["id"].as_str().unwrap(), key["secret"].as_str().unwrap());
    let form = [("grant_type", "client_credentials"), ("client_id", key_id), ("client_secret", secret)];
    let api = world.server.api();
    let token = api.send(api.request(reqwest::Method::POST, "/auth/token").form(&form)).await.expect(200);
    let api = world.server.api().with_token(token["access_token"].as_str().unwrap());
    Machine { id, key_id: key_id.to_owned(), api }
}

fn launcher(key: &str) -> Value {
    json!({ "name": "ci", "role": "launcher", "ssh_public_keys": [key] })
}

async fn launch(machine: &Machine, tenant: &Tenant) -> Answer {
    let key = kernel::Ambient::system().uuid().to_string();
    machine.api.post_once(&key, &tenant.path(""), json!({ "sku": "h200-sxm-slice", "gpus": 1 })).await
}

async fn budget(tenant: &Tenant, action: &str) {
    let body = json!({ "amount_minor": 50_000, "threshold_percent": 100, "action": action });
    let path = format!("/api/v1/projects/{}/budget", tenant.project);
    let answer = tenant.api().put(&path, body).await;
    assert!(answer.status < 300, "{}", answer.text);
}

#[tokio::test]
async fn whoami_names_user_and_service_account() {
    let world = World::start_simulated().await;
    let ann = world.tenant("ann").await;
    let bot = machine(&world, &ann, json!({ "name": "bot" })).await;
    let who = bot.api.get("/api/v1/whoami").await.expect(200);
    for (field, value) in [
        ("kind", json!("service_account")),
        ("id", json!(bot.id)),
        ("name", json!("bot")),
        ("roles", json!(["service_account_reader"])),
        ("project_id", json!(ann.project)),
        ("project_name", json!("ann-lab")),
        ("org_id", json!(ann.person.org_id)),
        ("key_id", json!(bot.key_id)),
    ] {
        assert_eq!(who[field], value, "{who}");
    }
    assert!(who["token_expires_at"].is_string(), "{who}");
    let who = ann.api().get("/api/v1/whoami").await.expect(200);
    assert_eq!(
        (&who["kind"], &who["id"], &who["email"]),
        (&json!("user"), &json!(ann.person.id), &json!("ann@example.org"))
    );
    // What is a person's own stays so.
    bot.api.get("/api/v1/me/invitations").await.refused(403, "insufficient_permissions");
}

#[tokio::test]
async fn a_reader_reads_what_a_viewer_reads_and_changes_nothing() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    budget(&ann, "release").await;
    let own = ann.active(json!({ "sku": "h200-sxm-slice", "gpus": 1 })).await;
    let bot = machine(&world, &ann, json!({ "name": "bot" })).await;
    let project = format!("/api/v1/projects/{}", ann.project);
    for path in ["", "/allocations", "/members", "/service-accounts", "/usage"] {
        bot.api.get(&format!("{project}{path}")).await.expect(200);
    }
    let refused = launch(&bot, &ann).await.refused(403, "insufficient_permissions");
    assert_eq!(refused["error"]["details"]["needed_role"], "service_account_launcher", "{refused}");
    bot.api
        .post(&ann.path(&format!("/{own}/release")), json!({}))
        .await
        .refused(403, "insufficient_permissions");
    // An account from before there were roles keeps what it had.
    world.db.sql("UPDATE service_accounts SET role = NULL").await;
    world.db.sql("SELECT pg_notify('gpuaas_invalidate', '*')").await;
    eventually_within(Duration::from_secs(5), "the role is gone", || async {
        (bot.api.get(&format!("{project}/members")).await.status == 403).then_some(())
    })
    .await;
    bot.api.get(&format!("{project}/allocations")).await.expect(200);
}

#[tokio::test]
async fn a_launcher_launches_within_the_budget_of_its_project_and_operates_what_it_launched() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let theirs = ann.active(json!({ "sku": "h200-sxm-slice", "gpus": 1 })).await;

    // A key to log in with, then a budget that ends its spending: explain says what the launch says.
    let ci = machine(&world, &ann, json!({ "name": "ci", "role": "launcher" })).await;
    let explain = ann.path("/explain?sku=h200-sxm-slice&gpus=1");
    let refusal = || async { ci.api.get(&explain).await.expect(200)["refusal"]["reason"].clone() };
    let refused = launch(&ci, &ann).await.refused(422, "unprocessable");
    assert_eq!(refused["error"]["details"]["reason"], refusal().await, "{refused}");
    let one = format!("{}/{}", accounts(&ann), ci.id);
    let key = made_up_key();
    ann.api().patch(&one, json!({ "ssh_public_keys": [format!("{key} ci@runner")] })).await.expect(200);
    for action in ["", "notify"] {
        if !action.is_empty() {
            budget(&ann, action).await;
        }
        let refused = launch(&ci, &ann).await.refused(402, "insufficient_balance");
        assert_eq!(refused["error"]["details"]["reason"], "spend_cap", "{refused}");
        assert_eq!(refused["error"]["details"]["reason"], refusal().await, "{refused}");
    }
    budget(&ann, "release").await;
    assert_eq!(refusal().await, Value::Null);
    let made = launch(&ci, &ann).await.expect(202);
    let id = made["id"].as_str().unwrap().to_owned();
    assert_eq!((&made["creator_kind"], &made["creator_id"]), (&json!("service_account"), &json!(ci.id)));
    ann.until(&id, "active").await;
    let keys = format!("SELECT count(*) FROM allocation_keys WHERE public_key = '{key}'");
    assert_eq!(world.count(&keys).await, 1);
    let trail = format!(
        "SELECT count(*) FROM audit_logs WHERE action = 'allocation.create' AND actor_kind = 'service_account' \
         AND result <> 'refused' AND target_id = '{id}' AND actor_id = '{}'",
        ci.id.trim_start_matches("sa_")
    );
    assert_eq!(world.count(&trail).await, 1);

    // Its own, and nothing of others.
    ci.api.post(&ann.path(&format!("/{theirs}/release")), json!({})).await.refused(403, "ownership_required");
    ci.api.post(&ann.path(&format!("/{id}/restart")), json!({})).await.expect(202);
    ci.api
        .put(
            &format!("/api/v1/projects/{}/budget", ann.project),
            json!({ "amount_minor": 1, "threshold_percent": 1, "action": "notify" }),
        )
        .await
        .refused(403, "insufficient_permissions");
    ci.api.post(&accounts(&ann), json!({ "name": "more" })).await.refused(403, "insufficient_permissions");
    // Groups too.
    let group = json!({ "sku": "h200-sxm-slice", "gpus": 1, "members": 2 });
    let path = format!("/api/v1/projects/{}/allocation-groups", ann.project);
    let group = ci.api.post_once("group", &path, group).await.expect(202);
    assert_eq!(group["created_by"], ci.id);
    let group = group["id"].as_str().unwrap();
    assert_eq!(ann.api().get(&format!("{path}/{group}")).await.expect(200)["created_by"], ci.id);
    ci.api.post(&format!("{path}/{group}/release"), json!({})).await.expect(202);

    eventually_within(Duration::from_secs(30), "the restart is over", || async {
        (ci.api.post(&ann.path(&format!("/{id}/release")), json!({})).await.status == 202).then_some(())
    })
    .await;
    ann.until(&id, "released").await;
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn a_launcher_launches_within_a_spend_cap_that_it_cannot_change() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let ci = machine(&world, &ann, launcher(&made_up_key())).await;
    let cap = format!("{}/{}/spend-cap", accounts(&ann), ci.id);
    ann.api().get(&cap).await.refused(404, "not_found");
    let explain = ann.path("/explain?sku=h200-sxm-slice&gpus=1");
    let explained = || async { ci.api.get(&explain).await.expect(200)["refusal"]["reason"].clone() };
    assert_eq!(explained().await, "spend_cap");
    launch(&ci, &ann).await.refused(402, "insufficient_balance");

    let hold = ann.api().get(&explain).await.expect(200)["funds"]["hold_minor"].as_i64().unwrap();
    for bad in [json!({ "amount_minor": 0 }), json!({}), json!({ "amount_minor": 1, "action": "block" })] {
        ann.api().put(&cap, bad).await.refused(400, "validation_error");
    }
    let set = ann.api().put(&cap, json!({ "amount_minor": 2 * hold - 1 })).await.expect(200);
    assert_eq!((&set["spent_minor"], &set["left_minor"]), (&json!(0), &json!(2 * hold - 1)), "{set}");
    assert_eq!(explained().await, Value::Null);
    let id = launch(&ci, &ann).await.expect(202)["id"].as_str().unwrap().to_owned();
    ann.until(&id, "active").await;
    assert_eq!(explained().await, "spend_cap");
    let refused = launch(&ci, &ann).await.refused(402, "insufficient_balance");
    assert_eq!(refused["error"]["details"]["reason"], "spend_cap", "{refused}");
    assert!(refused["error"]["suggestion"].as_str().unwrap().contains("spend-cap set"), "{refused}");

    // Its own cap is shown to it, and changed by others.
    ci.api.put(&cap, json!({ "amount_minor": 1_000_000 })).await.refused(403, "insufficient_permissions");
    ci.api.delete(&cap).await.refused(403, "insufficient_permissions");
    let bob = world.tenant("bob").await;
    let foreign = format!("{}/{}/spend-cap", accounts(&bob), ci.id);
    for path in [&cap, &foreign] {
        bob.api().get(path).await.refused(404, "not_found");
        bob.api().put(path, json!({ "amount_minor": 1 })).await.refused(404, "not_found");
    }
    // Nothing would end what it runs.
    let needed = ann.api().delete(&cap).await.refused(409, "conflict");
    assert_eq!(needed["error"]["details"]["reason"], "account_has_allocations", "{needed}");
    ann.release(&id).await;
    // The cap of a deleted account is still there to be changed and removed.
    ann.api().delete(&format!("{}/{}", accounts(&ann), ci.id)).await.expect(204);
    let raised = ann.api().put(&cap, json!({ "amount_minor": 5 * hold })).await.expect(200);
    assert_eq!((&raised["amount_minor"], &raised["version"]), (&json!(5 * hold), &json!(2)), "{raised}");
    ann.api().delete(&cap).await.expect(204);
    ann.api().get(&cap).await.refused(404, "not_found");
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn a_key_that_is_revoked_launches_no_more_and_a_disabled_account_logs_in_nowhere() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    budget(&ann, "release").await;
    let key = made_up_key();
    let ci = machine(&world, &ann, launcher(&key)).await;
    let id = launch(&ci, &ann).await.expect(202)["id"].as_str().unwrap().to_owned();
    ann.until(&id, "active").await;
    ann.api().delete(&format!("{}/{}/keys/{}", accounts(&ann), ci.id, ci.key_id)).await.expect(204);
    launch(&ci, &ann).await.refused(401, "token_revoked");
    // The machine runs on, until the account itself is ended: then its keys go.
    let one = format!("{}/{}", accounts(&ann), ci.id);
    let keys = format!("SELECT count(*) FROM allocation_keys WHERE public_key = '{key}'");
    assert_eq!(world.count(&keys).await, 1);
    ann.api().patch(&one, json!({ "disabled": true })).await.expect(200);
    eventually_within(Duration::from_secs(30), "the machine gave up the key", || async {
        (world.count(&keys).await == 0).then_some(())
    })
    .await;
    ann.api().delete(&one).await.expect(204);
    assert_eq!(ann.state(&id).await, "active");
    // Whoever administers the project ends what it left.
    ann.release(&id).await;
    invariants::hold(&world.db).await;
}

#[tokio::test]
async fn a_key_is_exchanged_for_a_token_as_the_openapi_document_says() {
    let world = World::start().await;
    let document = world.server.api().get("/api/v1/openapi.json").await.expect(200);
    let components = &document["components"];
    let flow = &components["securitySchemes"]["service_account"]["flows"]["clientCredentials"];
    let address = flow["tokenUrl"].as_str().unwrap();
    let project = world.project(&world.org("acme").await, "p").await;
    let accounts = format!("/api/v1/projects/{project}/service-accounts");
    let account = world.admin.post(&accounts, json!({ "name": "ci" })).await.expect(201);
    let keys = format!("{accounts}/{}/keys", account["id"].as_str().unwrap());
    let key = world.admin.post(&keys, json!({})).await.expect(201);
    let (id, secret) = (key["id"].as_str().unwrap(), key["secret"].as_str().unwrap());
    let api = world.server.api();
    for (secret, status, schema) in [(secret, 200, "ServiceAccountToken"), ("wrong", 401, "TokenError")] {
        let form = [("grant_type", "client_credentials"), ("client_id", id), ("client_secret", secret)];
        let answer = api.send(api.request(reqwest::Method::POST, address).form(&form)).await.expect(status);
        let schema = &components["schemas"][schema];
        for field in schema["required"].as_array().unwrap() {
            let name = field.as_str().unwrap();
            let is_text = schema["properties"][name]["type"] == "string";
            assert_eq!(answer[name].is_string(), is_text, "{name}: {answer}");
            assert!(!answer[name].is_null(), "{name}: {answer}");
        }
        if status == 200 {
            assert_eq!(answer["expires_in"], schema["example"]["expires_in"]);
        } else {
            assert_eq!(answer, schema["example"]);
        }
    }
}
