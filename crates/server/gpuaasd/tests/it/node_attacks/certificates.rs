//! Certificates that prove nothing, or no longer.

use std::time::Duration;

use kernel::{Ambient, Secret, ids::AuthorityId};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use serde_json::json;
use testkit::{NodeClient, NodeKeys, World, eventually};
use trust::ca::{Authority, Profile, Serial, Validity};

use super::{drain_queue, node, refusals};

pub const DOMAIN: &str = "gpuaas.local";

/// The active authority with its keys, as only somebody with the master key can open it.
pub async fn authority(world: &World) -> Authority {
    let text = std::fs::read_to_string(world.server.dir.path().join("data/secrets/master.key"));
    let text = text.expect("the master key");
    let digit = |n: usize| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).expect("hex");
    let master = Secret::new(std::array::from_fn(digit));
    let mut conn = world.db.conn(pg::Roles::Admin).await;
    let row: (uuid::Uuid, Vec<u8>) =
        sqlx::query_as("SELECT id, sealed FROM authorities WHERE state = 'active'")
            .fetch_one(&mut conn)
            .await
            .expect("an active authority");
    let sealer = trust::ca::sealer(&master).expect("a sealer");
    Authority::open(&sealer, AuthorityId::from(row.0), &row.1).expect("the authority opens")
}

pub fn hours(from: i64, to: i64) -> Validity {
    let now = Ambient::system().now();
    Validity {
        not_before: now + chrono::TimeDelta::hours(from),
        not_after: now + chrono::TimeDelta::hours(to),
    }
}

pub fn spiffe(node: &str) -> Profile {
    Profile::Node { spiffe_uri: format!("spiffe://{DOMAIN}/node/{node}") }
}

/// A certificate by the real authority, for anything.
pub fn issued(authority: &Authority, profile: &Profile, validity: Validity) -> (String, String) {
    let keys = NodeKeys::generate();
    let serial = Serial::random(&Ambient::system());
    let issued = authority.issue(&keys.csr_pem, profile, serial, validity).expect("a certificate");
    (issued.chain_pem, keys.key_pem)
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
        (
            "a node that does not exist",
            issued(&ours, &spiffe(&format!("node_{:032x}", 1)), hours(-1, 1)),
            "token_revoked",
        ),
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
pub fn self_signed(node: &str) -> (String, String) {
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
    one.api
        .post(&one.path("cert/renew"), json!({ "csr_pem": NodeKeys::generate().csr_pem }))
        .await
        .refused(401, "token_revoked");
    let ended = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("the wait ends").unwrap();
    assert_eq!(ended, 401);
    assert!(refusals(&world, "node.authenticate").await > 0);
}

/// Whether the certificate before may still ask for the new one hangs on it.
#[tokio::test]
async fn a_certificate_whose_authority_is_no_longer_in_force_was_not_used() {
    let world = World::start().await;
    let first = node(&world, "one").await;
    first.api.post(&first.path("heartbeat"), NodeClient::heartbeat()).await.expect(200);
    let keys = NodeKeys::generate();
    let renewal = json!({ "csr_pem": keys.csr_pem });
    let renewed = first.api.post(&first.path("cert/renew"), renewal).await.expect(200);
    // A connection with the new certificate, which says nothing as a node yet.
    let chain = renewed["certificate"]["chain_pem"].as_str().unwrap();
    let identity = reqwest::Identity::from_pem(format!("{}\n{chain}", keys.key_pem).as_bytes()).unwrap();
    let roots = world.node_roots().await;
    let roots = roots.iter().map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).unwrap());
    let client = testkit::http_client().pool_max_idle_per_host(1).tls_certs_only(roots).identity(identity);
    let held = testkit::Api::with_client(&world.server.node_url, client.build().unwrap());
    held.post("/internal/v1/nodes/enroll", json!({})).await.refused(400, "invalid_request");

    let authorities = "/api/v1/platform/trust/authorities";
    let old = world.admin.get(authorities).await.expect(200)["items"][0]["id"].as_str().unwrap().to_owned();
    world.admin.post(authorities, json!({})).await.expect(201);
    let revoke = json!({ "force": true, "reason": "its key is known" });
    world.admin.post(&format!("{authorities}/{old}/revoke"), revoke).await.expect(200);
    held.post(&first.path("heartbeat"), NodeClient::heartbeat()).await.refused(401, "token_invalid");
    let used =
        "SELECT count(*) FROM node_certificates WHERE revoked_at IS NULL AND first_used_at IS NOT NULL";
    assert_eq!(world.count(used).await, 0);
}

async fn reqwest_text(url: &str) -> String {
    testkit::Api::new(url, None).get("").await.text
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
    params.subject_alt_names =
        vec![SanType::URI(format!("spiffe://{DOMAIN}/node/{}", good.id).try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let chain = params.signed_by(&key, &issuer).unwrap().pem() + &good.chain_pem;
    let attacker = world.node_client(&good.id, &chain, &key.serialize_pem()).await;
    attacker.api.post(&good.path("heartbeat"), NodeClient::heartbeat()).await.refused(401, "token_invalid");
}
