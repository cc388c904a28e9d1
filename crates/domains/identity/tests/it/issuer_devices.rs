//! Devices without a browser, and service accounts.

use crate::kit::{Kit, claims, sql};
use endpoint::Caller;
use identity::{
    model::service_account::key_text,
    service::service_accounts::{
        AccountChange, NewAccount, service_account_create, service_account_key_create,
        service_account_key_revoke, service_account_update,
    },
};
use kernel::{
    Code,
    ids::{OrgId, ProjectId, ServiceAccountKeyId},
    policy::{PolicyKey as _, keys},
    text::Name,
};
use serde_json::{Value, json};
use testkit::Browser;
use uuid::Uuid;

async fn start(kit: &Kit) -> Value {
    let form = [("client_id", "gpuaas-cli"), ("scope", "openid")];
    let (status, device) = kit.post("/auth/device_authorization", &form).await;
    assert_eq!(status, 200, "{device}");
    device
}

async fn poll(kit: &Kit, device: &Value) -> (u16, Value) {
    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("client_id", "gpuaas-cli"),
        ("device_code", device["device_code"].as_str().unwrap()),
    ];
    kit.post("/auth/token", &form).await
}

async fn decide(kit: &Kit, browser: &mut Browser, device: &Value, decision: &str) -> testkit::Page {
    let address = device["verification_uri_complete"].as_str().unwrap();
    let page = browser.open(url::Url::parse(address).unwrap(), None).await;
    assert!(page.html.contains(device["user_code"].as_str().unwrap()), "{}", page.html);
    assert!(kit.base.len() > 1);
    browser.submit(&page, "/auth/device", &[("decision", decision)], None).await
}

#[tokio::test]
async fn a_device_waits_for_approval_and_is_then_signed_in_once() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let device = start(&kit).await;
    assert_eq!(poll(&kit, &device).await.1["error"], "authorization_pending");
    assert_eq!(poll(&kit, &device).await.1["error"], "slow_down");
    kit.advance(11);
    assert_eq!(poll(&kit, &device).await.1["error"], "authorization_pending");
    let page = decide(&kit, &mut browser, &device, "approve").await;
    assert!(page.html.contains("The device is signed in"), "{}", page.html);
    kit.advance(11);
    let (status, tokens) = poll(&kit, &device).await;
    assert_eq!(status, 200, "{tokens}");
    assert!(matches!(kit.who(&tokens["access_token"]).await, Ok(Caller::User { .. })));
    assert_eq!(kit.refresh(&tokens["refresh_token"]).await.0, 200);
    kit.advance(11);
    assert_eq!(poll(&kit, &device).await.1["error"], "invalid_grant");
    let audited =
        "SELECT count(*) FROM audit_logs WHERE action = 'auth.device.approve' AND actor_kind = 'user'";
    assert_eq!(kit.count(audited).await, 1);
}

#[tokio::test]
async fn a_denied_and_an_expired_device_get_nothing() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let denied = start(&kit).await;
    let page = decide(&kit, &mut browser, &denied, "deny").await;
    assert!(page.html.contains("denied"), "{}", page.html);
    assert_eq!(poll(&kit, &denied).await.1["error"], "access_denied");
    let expired = start(&kit).await;
    kit.advance(600);
    assert_eq!(poll(&kit, &expired).await.1["error"], "expired_token");
    let address = expired["verification_uri_complete"].as_str().unwrap();
    let page = browser.open(url::Url::parse(address).unwrap(), None).await;
    assert_eq!(page.status, 400, "nobody can approve it any more");
    assert_eq!(poll(&kit, &json!({ "device_code": "nonsense" })).await.1["error"], "invalid_grant");
}

#[tokio::test]
async fn somebody_not_signed_in_comes_back_to_the_code_after_signing_in() {
    let kit = Kit::start().await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    let device = start(&kit).await;
    let mut browser = Browser::default();
    let address = device["verification_uri_complete"].as_str().unwrap();
    let page = browser.open(url::Url::parse(address).unwrap(), None).await;
    assert_eq!(page.url.path(), "/auth/login");
    let fields = [("email", "ann@example.org"), ("password", crate::kit::PASSWORD)];
    let page = browser.submit(&page, "/auth/login", &fields, None).await;
    assert!(page.html.contains("Approve this device?"), "{}", page.html);
}

/// A service account in somebody's `default` project; its key's id and text.
async fn service_account(kit: &Kit) -> (ServiceAccountKeyId, String) {
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    let (id, secret) = (ServiceAccountKeyId::from(Uuid::from_u128(0x5a)), [9u8; 32]);
    let hash = hex::encode(kernel::digest::sha256(secret));
    sql(
        &kit.db,
        &format!(
            "INSERT INTO service_accounts (id, org_id, project_id, name, created_at, updated_at)
            SELECT '00000000-0000-0000-0000-000000000001', org_id, id, 'robot', now(), now() FROM projects;
         INSERT INTO service_account_keys (id, org_id, service_account_id, secret_hash, created_at)
            SELECT '{}', org_id, id, '\\x{hash}', now() FROM service_accounts",
            id.uuid()
        ),
    )
    .await;
    (id, key_text(id, &secret).expose().clone())
}

#[tokio::test]
async fn a_service_accounts_key_becomes_a_short_token_of_its_project() {
    let kit = Kit::start().await;
    let (id, secret) = service_account(&kit).await;
    let id_text = id.to_string();
    let form = [("grant_type", "client_credentials"), ("client_id", &id_text), ("client_secret", &secret)];
    let (status, token) = kit.post("/auth/token", &form).await;
    assert_eq!((status, &token["expires_in"]), (200, &json!(900)), "{token}");
    assert!(token.get("refresh_token").is_none());
    assert_eq!(claims(&token["access_token"])["gpuaas_key"], json!(id));
    assert!(matches!(kit.who(&token["access_token"]).await, Ok(Caller::ServiceAccount { .. })));

    let basic = kit.http.post(kit.url("/auth/token")).basic_auth(&id_text, Some(&secret));
    let basic = basic.form(&[("grant_type", "client_credentials")]).send().await.unwrap();
    assert_eq!(basic.status(), 200);

    // Revoked behind everybody's back: no notification, and still effective within three seconds.
    sql(&kit.db, "UPDATE service_account_keys SET revoked_at = now()").await;
    kit.advance(3);
    assert_eq!(kit.who(&token["access_token"]).await.unwrap_err(), Code::TokenRevoked);
    let (status, answer) = kit.post("/auth/token", &form).await;
    assert_eq!((status, &answer["error"]), (401, &json!("invalid_client")));
}

#[tokio::test]
async fn a_wrong_key_an_expired_one_and_a_disabled_account_get_nothing() {
    let kit = Kit::start().await;
    let (id, secret) = service_account(&kit).await;
    let exchange = async |id: &str, secret: &str| {
        let form = [("grant_type", "client_credentials"), ("client_id", id), ("client_secret", secret)];
        kit.post("/auth/token", &form).await
    };
    let other = key_text(id, &[1; 32]).expose().clone();
    let stranger = ServiceAccountKeyId::from(Uuid::from_u128(7)).to_string();
    for (id, secret) in [(id.to_string(), other), (stranger, secret.clone()), (id.to_string(), String::new())]
    {
        assert_eq!(exchange(&id, &secret).await.1["error"], "invalid_client");
    }
    let (_, token) = exchange(&id.to_string(), &secret).await;
    assert!(kit.who(&token["access_token"]).await.is_ok());
    sql(&kit.db, "UPDATE service_accounts SET disabled_at = now()").await;
    kit.advance(3);
    assert_eq!(kit.who(&token["access_token"]).await.unwrap_err(), Code::TokenRevoked);
    assert_eq!(exchange(&id.to_string(), &secret).await.0, 401);
    let refused = |code: &str, chain: &str| {
        format!(
            "SELECT count(*) FROM audit_logs WHERE action = 'auth.key.exchange' AND result = 'refused'
             AND target_kind = 'service_account_key' AND target_id = '{id}' AND code = '{code}' AND {chain}"
        )
    };
    let (stranger, tenant) = (
        "actor_kind = 'anonymous' AND project_id IS NULL",
        "actor_kind = 'service_account' AND project_id IS NOT NULL",
    );
    assert_eq!(kit.count(&refused("token_invalid", stranger)).await, 1, "a wrong secret of a known key");
    assert_eq!(kit.count(&refused("token_revoked", tenant)).await, 1, "a disabled account");
    sql(
        &kit.db,
        "UPDATE service_accounts SET disabled_at = NULL;
                  UPDATE service_account_keys SET expires_at = now() - interval '1 hour'",
    )
    .await;
    assert_eq!(exchange(&id.to_string(), &secret).await.0, 401);
    assert_eq!(kit.count(&refused("token_expired", tenant)).await, 1);
    let all = "SELECT count(*) FROM audit_logs WHERE action = 'auth.key.exchange'";
    assert_eq!(kit.count(all).await, 3, "unknown keys and successes are not told");
}

#[tokio::test]
async fn a_device_let_in_before_the_password_changed_gets_nothing_afterwards() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let device = start(&kit).await;
    let page = decide(&kit, &mut browser, &device, "approve").await;
    assert!(page.html.contains("The device is signed in"), "{}", page.html);
    let page = browser.open(kit.url("/auth/password"), None).await;
    let new = "another long password";
    let fields = [("current", crate::kit::PASSWORD), ("new", new), ("again", new)];
    browser.submit(&page, "/auth/password", &fields, None).await;
    assert_eq!(poll(&kit, &device).await.1["error"], "invalid_grant");
    assert_eq!(kit.count("SELECT count(*) FROM account_sessions").await, 0);
}

#[tokio::test]
async fn keys_overlap_during_a_rotation_and_end_when_revoked_expired_or_their_account_is_disabled() {
    let kit = Kit::start().await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    let mut admin = kit.db.conn(pg::Roles::Admin).await;
    let (project, org): (Uuid, Uuid) =
        sqlx::query_as("SELECT id, org_id FROM projects").fetch_one(&mut admin).await.unwrap();
    let (project, org) = (ProjectId::from(project), OrgId::from(org));
    let write = async || {
        let origin = pg::Origin::internal(kernel::CorrelationId(kit.db.db.ambient().uuid()));
        kit.db.db.write(pg::Permit::system("test", origin), "test.service_account").await.unwrap()
    };
    let exchange = async |id: ServiceAccountKeyId, secret: &str| {
        let id = id.to_string();
        let form = [("grant_type", "client_credentials"), ("client_id", &id), ("client_secret", secret)];
        kit.post("/auth/token", &form).await
    };

    let limit = keys::KEYS_PER_SERVICE_ACCOUNT.default_setting();
    let mut tx = write().await;
    let robot =
        service_account_create(&mut tx, org, project, NewAccount::reader(Name::parse("robot").unwrap()))
            .await
            .unwrap();
    let mut made = Vec::new();
    for days in [None, None, Some(1)] {
        let (key, secret) =
            service_account_key_create(&mut tx, (org, project), robot.id, days, limit).await.unwrap();
        made.push((key.id, secret.expose().clone()));
    }
    tx.commit(None).await.unwrap();
    let [old, new, brief] = <[_; 3]>::try_from(made).unwrap();

    let mut tokens = Vec::new();
    for (id, secret) in [&old, &new, &brief] {
        let (status, token) = exchange(*id, secret).await;
        assert_eq!(status, 200, "{token}");
        let caller = kit.who(&token["access_token"]).await.unwrap();
        assert!(
            matches!(caller, Caller::ServiceAccount { id, project: p, .. } if id == robot.id && p == project)
        );
        tokens.push(token["access_token"].clone());
    }
    let used = "SELECT count(*) FROM service_account_keys WHERE last_used_at IS NOT NULL";
    assert_eq!(kit.count(used).await, 3);
    assert_eq!(exchange(old.0, &new.1).await.0, 401, "the secret of another key");

    let mut tx = write().await;
    service_account_key_revoke(&mut tx, project, robot.id, old.0).await.unwrap();
    tx.commit(None).await.unwrap();
    kit.advance(3);
    assert_eq!(exchange(old.0, &old.1).await.0, 401);
    assert_eq!(kit.who(&tokens[0]).await.unwrap_err(), Code::TokenRevoked);
    assert_eq!(exchange(new.0, &new.1).await.0, 200, "the other key goes on");
    assert!(kit.who(&tokens[1]).await.is_ok());

    kit.advance(86_400 - 60);
    let (_, last) = exchange(brief.0, &brief.1).await;
    assert!(last["expires_in"].as_i64().unwrap() <= 60, "a token does not outlive its key: {last}");
    kit.advance(120);
    assert_eq!(exchange(brief.0, &brief.1).await.0, 401, "expired");
    let (status, token) = exchange(new.0, &new.1).await;
    assert_eq!(status, 200, "{token}");

    let mut tx = write().await;
    let off = AccountChange { disabled: Some(true), ..AccountChange::default() };
    service_account_update(&mut tx, project, robot.id, off, Some(1)).await.unwrap();
    tx.commit(None).await.unwrap();
    kit.advance(3);
    assert_eq!(exchange(new.0, &new.1).await.0, 401);
    assert_eq!(kit.who(&token["access_token"]).await.unwrap_err(), Code::TokenRevoked);
}
