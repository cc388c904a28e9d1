//! Attacks on the node listener and on what stands behind it: each is refused, and each is in the audit trail.

use std::time::Duration;

use kernel::{Ambient, Secret, ids::AuthorityId};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use serde_json::{Value, json};
use testkit::{CreatedNode, NodeClient, NodeKeys, World, eventually};
use trust::{
    ca::{Authority, Profile, Serial, Validity},
    signer::{FileCustody, KeyCustody as _},
};

const DOMAIN: &str = "gpuaas.local";

/// How many refusals of this action stand in the trail.
async fn refusals(world: &World, action: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM audit_logs WHERE action = '{action}' AND result = 'refused'");
    world.count(&sql).await
}

/// The active authority with its keys, as only somebody with the master key can open it.
async fn authority(world: &World) -> Authority {
    let text = std::fs::read_to_string(world.server.dir.path().join("data/secrets/master.key"));
    let text = text.expect("the master key");
    let digit = |n: usize| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).expect("hex");
    let master = Secret::new(std::array::from_fn(digit));
    let mut conn = world.db.conn(pg::Roles::Admin).await;
    let row: (uuid::Uuid, Vec<u8>) = sqlx::query_as("SELECT id, sealed FROM authorities WHERE state = 'active'")
        .fetch_one(&mut conn)
        .await
        .expect("an active authority");
    let sealer = trust::ca::sealer(&master).expect("a sealer");
    Authority::open(&sealer, AuthorityId::from(row.0), &row.1).expect("the authority opens")
}

fn hours(from: i64, to: i64) -> Validity {
    let now = Ambient::system().now();
    Validity { not_before: now + chrono::TimeDelta::hours(from), not_after: now + chrono::TimeDelta::hours(to) }
}

fn spiffe(node: &str) -> Profile {
    Profile::Node { spiffe_uri: format!("spiffe://{DOMAIN}/node/{node}") }
}

/// A certificate by the real authority, for anything.
fn issued(authority: &Authority, profile: &Profile, validity: Validity) -> (String, String) {
    let keys = NodeKeys::generate();
    let serial = Serial::random(&Ambient::system());
    let issued = authority.issue(&keys.csr_pem, profile, serial, validity).expect("a certificate");
    (issued.chain_pem, keys.key_pem)
}

async fn node(world: &World, hostname: &str) -> NodeClient {
    world.enrolled_node(&world.created_node(hostname).await).await
}

#[tokio::test]
async fn a_certificate_that_does_not_prove_a_node_of_ours_is_refused_and_recorded() {
    let world = World::start().await;
    let good = node(&world, "victim").await;
    let ours = authority(&world).await;
    let foreign = Authority::generate(&Ambient::system(), DOMAIN, ours.id()).expect("another authority");
    let usual = spiffe(&good.id);
    let server = Profile::Server { names: vec!["localhost".to_owned()], addresses: vec![] };
    let elsewhere = Profile::Node { spiffe_uri: format!("spiffe://elsewhere.example/node/{}", good.id) };
    let not_a_node = Profile::Node { spiffe_uri: format!("spiffe://{DOMAIN}/user/{}", good.id) };
    let cases = [
        ("another authority", issued(&foreign, &usual, hours(-1, 1)), "token_invalid"),
        ("expired", issued(&ours, &usual, hours(-2, -1)), "token_expired"),
        ("not yet valid", issued(&ours, &usual, hours(1, 2)), "token_invalid"),
        ("made for servers", issued(&ours, &server, hours(-1, 1)), "token_invalid"),
        ("another domain", issued(&ours, &elsewhere, hours(-1, 1)), "token_invalid"),
        ("not a node's name", issued(&ours, &not_a_node, hours(-1, 1)), "token_invalid"),
        ("signed by itself", self_signed(&good.id), "token_invalid"),
        ("a node that does not exist", issued(&ours, &spiffe(&format!("node_{:032x}", 1)), hours(-1, 1)), "token_revoked"),
    ];
    for (what, (chain, key), code) in cases {
        let before = refusals(&world, "node.authenticate").await;
        let attacker = world.node_client(&good.id, &chain, &key).await;
        // Whose id stands in the path makes no difference: the certificate comes first.
        let answer = attacker.api.post(&attacker.path("heartbeat"), NodeClient::heartbeat()).await;
        assert!(matches!(answer.status, 401 | 403), "{what}: {}", answer.text);
        let own_path = what == "a node that does not exist";
        assert!(answer.code() == code || own_path, "{what}: {}", answer.text);
        assert!(refusals(&world, "node.authenticate").await > before, "{what} is not in the trail");
    }
    let nobody = world.node_listener().await;
    nobody.post(&good.path("heartbeat"), NodeClient::heartbeat()).await.refused(401, "token_missing");
    good.api.post(&good.path("heartbeat"), NodeClient::heartbeat()).await.expect(200);
}

/// Everything right but the signature.
fn self_signed(node: &str) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    let name = format!("spiffe://{DOMAIN}/node/{node}").try_into().expect("a name");
    params.subject_alt_names = vec![SanType::URI(name)];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.self_signed(&key).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_node_speaks_for_itself_only() {
    let world = World::start().await;
    let (one, other) = (node(&world, "one").await, node(&world, "other").await);
    let before = refusals(&world, "node.authenticate").await;
    for path in ["heartbeat", "cert/renew", "logs"] {
        let answer = one.api.post(&other.path(path), json!({})).await;
        assert_eq!((answer.status, answer.code()), (403, "ownership_required"), "{path}: {}", answer.text);
    }
    one.api.get(&other.path("tasks/wait?seconds=0")).await.refused(403, "ownership_required");
    one.api.get(&other.path("trust")).await.refused(403, "ownership_required");
    assert!(refusals(&world, "node.authenticate").await > before);
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_at_once_even_in_the_middle_of_a_wait() {
    let world = World::start().await;
    let one = node(&world, "one").await;
    drain_queue(&one).await;
    let waiting = tokio::spawn({
        let one = one.clone();
        async move { one.api.get(&one.path("tasks/wait?seconds=30")).await.status }
    });
    eventually("the wait is entered", || async {
        let metrics = reqwest_text(&format!("{}/metrics", world.server.ops)).await;
        metrics.lines().any(|line| line.starts_with("node_waiting") && !line.ends_with(" 0")).then_some(())
    })
    .await;
    let body = json!({ "reason": "stolen" });
    let path = format!("/api/v1/platform/nodes/{}/certificates/revoke", one.id);
    let revoked = world.admin.post(&path, body).await;
    assert!(revoked.status < 300, "{}", revoked.text);
    one.api.post(&one.path("heartbeat"), NodeClient::heartbeat()).await.refused(401, "token_revoked");
    one.api.post(&one.path("cert/renew"), json!({ "csr_pem": NodeKeys::generate().csr_pem })).await.refused(401, "token_revoked");
    let ended = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("the wait ends").unwrap();
    assert_eq!(ended, 401);
    assert!(refusals(&world, "node.authenticate").await > 0);
}

async fn reqwest_text(url: &str) -> String {
    testkit::Api::new(url, None).get("").await.text
}

#[tokio::test]
async fn a_bootstrap_token_is_worth_one_enrolment_of_one_node_in_its_time() {
    let world = World::start().await;
    let (mine, other) = (world.created_node("mine").await, world.created_node("other").await);
    let listener = world.node_listener().await;
    let enroll = async |node: &CreatedNode| {
        let body = World::enroll_body(node, &NodeKeys::generate());
        listener.post("/internal/v1/nodes/enroll", body).await
    };
    let before = refusals(&world, "node.enroll").await;
    let stolen = [
        CreatedNode { id: other.id.clone(), hostname: other.hostname.clone(), ..mine.clone() },
        CreatedNode { hostname: "elsewhere".to_owned(), ..mine.clone() },
        CreatedNode { token: "guessed".to_owned(), ..mine.clone() },
    ];
    for attempt in &stolen {
        enroll(attempt).await.refused(401, "token_invalid");
    }
    enroll(&mine).await.expect(200);
    enroll(&mine).await.refused(401, "token_invalid");
    let mut conn = world.db.conn(pg::Roles::Admin).await;
    let late = "UPDATE node_tokens SET created_at = created_at - interval '20 minutes', expires_at = expires_at - interval '20 minutes'";
    sqlx::Executor::execute(&mut conn, late).await.expect("time passes");
    enroll(&other).await.refused(401, "token_invalid");
    assert!(refusals(&world, "node.enroll").await >= before + 5);
    assert_eq!(world.node_state(&other.id).await, "bootstrap_issued");
    // Nothing of a token lies readable in the database.
    let found = world.count(&format!("SELECT count(*) FROM node_tokens WHERE encode(token_hash, 'escape') LIKE '%{}%'", mine.token)).await;
    assert_eq!(found, 0);
}

#[tokio::test]
async fn of_many_that_enrol_with_one_token_at_once_one_becomes_the_node() {
    let world = World::start().await;
    let mine = world.created_node("mine").await;
    let listener = world.node_listener().await;
    let attempts = (0..20).map(|_| {
        let (listener, body) = (listener.clone(), World::enroll_body(&mine, &NodeKeys::generate()));
        tokio::spawn(async move { listener.post("/internal/v1/nodes/enroll", body).await.status })
    });
    let mut admitted = 0;
    for attempt in attempts.collect::<Vec<_>>() {
        let status = attempt.await.unwrap();
        assert!(matches!(status, 200 | 401 | 429 | 503), "{status}");
        admitted += usize::from(status == 200);
    }
    assert_eq!(admitted, 1);
    assert_eq!(world.count("SELECT count(*) FROM node_certificates").await, 1);
}

/// Lets the node do its discovery and answers everything that waits, so that the queue is empty.
async fn drain_queue(node: &NodeClient) {
    loop {
        let tasks = node.wait(1, "").await;
        if tasks.is_empty() {
            return;
        }
        for task in tasks {
            let id = payload(&task)["task_id"].as_str().unwrap().to_owned();
            let failed = json!({ "ending": { "status": "failed", "failure": { "code": "unavailable", "message": "not now" } } });
            node.api.post(&node.path(&format!("tasks/{id}/result")), failed).await.expect(200);
        }
    }
}

fn payload(task: &Value) -> Value {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(task["payload"].as_str().unwrap()).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// As a superuser of the database: one more task row.
async fn insert_task(world: &World, node: &str, task: uuid::Uuid, payload: &[u8], signature: &[u8], signer: i32) {
    let mut conn = world.db.conn(pg::Roles::Admin).await;
    sqlx::query(
        "INSERT INTO node_tasks (id, node_id, task_type, payload, signature, signer_version, correlation_id, issued_at, expires_at, created_at, updated_at)
         VALUES ($1, $2, 'node.reboot', $3, $4, $5, $6, now(), now() + interval '10 minutes', now(), now())",
    )
    .bind(task)
    .bind(uuid::Uuid::parse_str(node.trim_start_matches("node_")).unwrap())
    .bind(payload)
    .bind(signature)
    .bind(signer)
    .bind(uuid::Uuid::nil())
    .execute(&mut conn)
    .await
    .expect("a superuser can insert rows");
}

fn reboot(node: &str, task: uuid::Uuid, signer: u32) -> Vec<u8> {
    let now = Ambient::system().now();
    let task = node_proto::Task {
        task_id: task.into(),
        node_id: node.parse().unwrap(),
        task_type: "node.reboot".to_owned(),
        params: json!({ "reason": "because I can" }),
        attempt: 1,
        issued_at: now,
        expires_at: now + chrono::TimeDelta::minutes(10),
        correlation_id: uuid::Uuid::nil(),
        traceparent: None,
        signer_version: signer,
    };
    task.canonical().unwrap()
}

/// None of `ids` reaches the node; each ends as failed, and the attempt is recorded.
async fn never_delivered(world: &World, node: &NodeClient, ids: &[uuid::Uuid]) {
    let tasks = node.wait(2, "").await;
    assert!(tasks.is_empty(), "{tasks:?}");
    for id in ids {
        let state = eventually("the row is ended", || async {
            let answer = world.admin.get(&format!("/api/v1/platform/tasks/task_{}", id.simple())).await;
            (answer.body["state"] != "queued" && answer.body["state"] != "dispatched").then_some(answer.body)
        })
        .await;
        assert_eq!(state["state"], "failed", "{state}");
    }
    let recorded = refusals(world, "task.dispatch").await;
    assert!(recorded >= i64::try_from(ids.len()).unwrap(), "{recorded}");
}

#[tokio::test]
async fn a_superuser_of_the_database_cannot_make_a_node_do_anything() {
    let world = World::start().await;
    let (one, other) = (node(&world, "one").await, node(&world, "other").await);
    drain_queue(&one).await;
    drain_queue(&other).await;
    let ambient = Ambient::system();
    let ids: Vec<uuid::Uuid> = (0..4).map(|_| ambient.uuid()).collect();

    // A row without a signature; one with a signature that somebody made with a key of theirs.
    let mine = tempfile::tempdir().unwrap();
    let custody = FileCustody::open(mine.path().join("keys")).unwrap();
    let public = custody.generate(1).unwrap();
    let forged = reboot(&one.id, ids[1], 1);
    let signature = custody.sign(1, &node_proto::task::signing_bytes(&forged)).unwrap();
    insert_task(&world, &one.id, ids[0], &reboot(&one.id, ids[0], 1), &[0; 64], 1).await;
    insert_task(&world, &one.id, ids[1], &forged, &signature, 1).await;

    // A signer of their own, in the table and in a list of their own making.
    let mut conn = world.db.conn(pg::Roles::Admin).await;
    sqlx::query("INSERT INTO signer_keys (signer_version, state, public_key, created_at, updated_at) VALUES (99, 'grace', $1, now(), now())")
        .bind(&public[..])
        .execute(&mut conn)
        .await
        .unwrap();
    let keyset = node_proto::Keyset {
        serial: 1000,
        issued_at: ambient.now(),
        signers: vec![node_proto::SignerKey {
            signer_version: 99,
            state: node_proto::SignerState::Active,
            public_key: node_proto::text::Base64(public.to_vec()),
        }],
    };
    let document = node_proto::canonical::encode(&keyset).unwrap();
    let list_signature = custody.sign_keyset(1000, &node_proto::keyset::signing_bytes(&document)).unwrap();
    sqlx::query("INSERT INTO signer_keysets (serial, document, signature, created_at) VALUES (1000, $1, $2, now())")
        .bind(&document)
        .bind(&list_signature[..])
        .execute(&mut conn)
        .await
        .unwrap();
    sqlx::Executor::execute(&mut conn, "SELECT pg_notify('gpuaas_invalidate', '*')").await.unwrap();
    let forged = reboot(&one.id, ids[2], 99);
    let signature = custody.sign(1, &node_proto::task::signing_bytes(&forged)).unwrap();
    insert_task(&world, &one.id, ids[2], &forged, &signature, 99).await;

    // A real task of another node, moved here.
    let drain = world.admin.post(&format!("/api/v1/platform/nodes/{}/discover", other.id), json!({})).await;
    assert!(drain.status < 300, "{}", drain.text);
    let sql = "UPDATE node_tasks SET state = 'cancelled' WHERE state = 'queued' AND task_type = 'slice.topology_discover' RETURNING payload, signature";
    let (real, signature): (Vec<u8>, Vec<u8>) = sqlx::query_as(sql).fetch_one(&mut conn).await.unwrap();
    insert_task(&world, &one.id, ids[3], &real, &signature, 1).await;

    never_delivered(&world, &one, &ids).await;
    // What was signed cannot be changed either.
    let altered = sqlx::Executor::execute(&mut conn, "UPDATE node_tasks SET payload = 'x'").await;
    assert!(altered.is_err());
    // And the real control plane still works.
    let again = world.admin.post(&format!("/api/v1/platform/nodes/{}/discover", one.id), json!({})).await;
    assert!(again.status < 300, "{}", again.text);
    assert_eq!(one.wait(5, "").await.len(), 1);
}

#[tokio::test]
async fn work_of_a_retired_signer_is_not_handed_out() {
    let world = World::start().await;
    let one = node(&world, "one").await;
    drain_queue(&one).await;
    let queued = world.admin.post(&format!("/api/v1/platform/nodes/{}/discover", one.id), json!({})).await;
    assert!(queued.status < 300, "{}", queued.text);
    let signers = "/api/v1/platform/trust/signers";
    let force = json!({ "force": true, "reason": "test" });
    let staged = world.admin.post(signers, json!({})).await;
    assert!(staged.status < 300, "{}", staged.text);
    for step in ["2/activate", "1/retire"] {
        let done = world.admin.post(&format!("{signers}/{step}"), force.clone()).await;
        assert!(done.status < 300, "{step}: {}", done.text);
    }
    assert!(one.wait(2, "").await.is_empty(), "signed by a retired signer");
    assert!(refusals(&world, "task.dispatch").await >= 1);
    // New work is signed by the new one, without a restart of anything.
    let queued = world.admin.post(&format!("/api/v1/platform/nodes/{}/discover", one.id), json!({})).await;
    assert!(queued.status < 300, "{}", queued.text);
    let tasks = one.wait(5, "").await;
    assert_eq!(tasks[0]["signer_version"], 2, "{tasks:?}");
}

#[tokio::test]
async fn a_result_counts_only_from_the_node_that_was_given_the_task_and_only_once() {
    let world = World::start().await;
    let (one, other) = (node(&world, "one").await, node(&world, "other").await);
    let task = &one.wait(10, "").await[0];
    let id = payload(task)["task_id"].as_str().unwrap().to_owned();
    let result = |text: &str| json!({ "ending": { "status": "failed", "failure": { "code": "driver", "message": text } } });
    let path = |node: &NodeClient| node.path(&format!("tasks/{id}/result"));
    other.api.post(&path(&other), result("forged")).await.refused(404, "not_found");
    let unknown = one.path(&format!("tasks/task_{:032x}/result", 5));
    one.api.post(&unknown, result("made up")).await.refused(404, "not_found");
    assert!(refusals(&world, "task.result").await >= 1);
    one.api.post(&path(&one), result("true")).await.expect(200);
    one.api.post(&path(&one), result("true")).await.expect(200);
    one.api.post(&path(&one), result("changed my mind")).await.refused(409, "conflict");
    let written = world.count("SELECT count(*) FROM audit_logs WHERE action = 'task.result' AND result = 'allowed'").await;
    assert_eq!(written, 1, "the same result again has no effect");
}

#[tokio::test]
async fn bodies_that_are_too_large_malformed_or_endless_are_refused_and_the_listener_goes_on() {
    let world = World::start().await;
    let one = node(&world, "one").await;
    let huge = json!({ "csr_pem": "x".repeat(64 * 1024) });
    one.api.post(&one.path("cert/renew"), huge).await.refused(413, "payload_too_large");
    let send = |body: Vec<u8>| {
        let request = one.api.request(reqwest::Method::POST, &one.path("heartbeat"));
        one.api.send(request.header("content-type", "application/json").body(body))
    };
    for body in [&b"{"[..], b"[]", b"null", b"\xff\xfe", br#"{"agent_version": 7}"#] {
        let answer = send(body.to_vec()).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
    }
    let deep = vec![b'['; 20_000];
    assert_eq!(send(deep).await.status, 400);
    for odd in ["tasks/nonsense/result", "tasks/../../x/result", "tasks/task_%00/result"] {
        let answer = one.api.post(&one.path(odd), json!({})).await;
        assert!((400..500).contains(&answer.status), "{odd}: {}", answer.text);
    }
    let csr = one.api.post(&one.path("cert/renew"), json!({ "csr_pem": "not a request" })).await;
    assert!((400..500).contains(&csr.status), "{}", csr.text);
    // A body that never ends is given up within the time for bodies, not kept.
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
    let stream = futures_util::stream::unfold(receiver, |mut r| async { r.recv().await.map(|item| (item, r)) });
    sender.send(Ok(b"{".to_vec())).await.unwrap();
    let request = one.api.request(reqwest::Method::POST, &one.path("heartbeat"));
    let slow = one.api.send(request.header("content-type", "application/json").body(reqwest::Body::wrap_stream(stream)));
    let answer = tokio::time::timeout(Duration::from_secs(45), slow).await.expect("given up in time");
    assert!(answer.status >= 400, "{}", answer.text);
    drop(sender);
    one.api.post(&one.path("heartbeat"), NodeClient::heartbeat()).await.expect(200);
}

#[tokio::test]
async fn a_foreign_intermediate_in_the_chain_proves_nothing() {
    let world = World::start().await;
    let good = node(&world, "victim").await;
    // A node tries to use its own certificate as an authority for another node's name.
    let own_key = KeyPair::from_pem(&good.key_pem).unwrap();
    let leaf = good.chain_pem.split_inclusive("-----END CERTIFICATE-----").next().unwrap().to_owned();
    let issuer = Issuer::from_ca_cert_pem(&leaf, &own_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(format!("spiffe://{DOMAIN}/node/{}", good.id).try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let chain = params.signed_by(&key, &issuer).unwrap().pem() + &good.chain_pem;
    let attacker = world.node_client(&good.id, &chain, &key.serialize_pem()).await;
    attacker.api.post(&good.path("heartbeat"), NodeClient::heartbeat()).await.refused(401, "token_invalid");
}
