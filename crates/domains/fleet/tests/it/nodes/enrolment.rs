use chrono::TimeDelta;
use fleet::model::certificate::CertificateState;
use fleet::model::node::NodeState;
use fleet::{
    model::{page::KeyPageQuery, text::CertificateSerial},
    service::{
        certificates::{node_certificate_revoke, node_certificates},
        enrollment::{enroll, renew},
        node_identity::{Rekey, first_use, node_rekey},
        node_trust::{NodeTrust, NodeTrustCache, Worth},
        tokens::{node_bootstrap_token, node_repair_token},
    },
};
use kernel::{Code, Failure, ids::NodeId};
use node_proto::contract::{RenewRequest, spiffe_id};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::world::{World, code, csr, reason, text};

pub async fn renewal(world: &World, node: NodeId) -> Result<String, Failure> {
    renewal_by(world, node, &world.serial(node).await).await
}

async fn renewal_by(world: &World, node: NodeId, serial: &str) -> Result<String, Failure> {
    renewal_of(world, node, serial, &csr()).await
}

pub async fn renewal_of(world: &World, node: NodeId, serial: &str, csr: &str) -> Result<String, Failure> {
    let request = RenewRequest { csr_pem: csr.to_owned() };
    Ok(renew(&world.fleet, node, serial, &request, &world.origin()).await?.certificate.chain_pem)
}

pub async fn standing(world: &World, node: NodeId) -> NodeTrust {
    NodeTrustCache::new(&world.test.db).get(node).await.unwrap().unwrap()
}

async fn repair_token(world: &World, node: NodeId) -> Result<String, Failure> {
    let mut tx = world.write("node.repair_token").await;
    let issued = node_repair_token(&world.fleet, &mut tx, node).await?;
    tx.commit(None).await.unwrap();
    Ok(text(&serde_json::to_value(&issued).unwrap()["token"]))
}

#[tokio::test]
async fn a_token_becomes_a_certificate_that_names_the_node_and_the_trust_to_check_work_with() {
    let world = World::new().await;
    let (node, token) = world.node("gpu-01").await;
    let enrolled = world.enroll(&node, &token).await.unwrap();
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(enrolled.certificate.chain_pem.as_bytes())
            .map(Result::unwrap)
            .collect();
    let peer = world.fleet.trust().verifier().await.unwrap().verify(&chain, world.now()).unwrap();
    assert_eq!(spiffe_id("gpuaas.test", node.id), spiffe_id("gpuaas.test", peer.node_id));
    let lifetime = enrolled.certificate.not_after - world.now();
    assert!(lifetime <= TimeDelta::hours(24) && lifetime > TimeDelta::hours(23), "{lifetime}");
    assert!(enrolled.certificate.not_before <= world.now() - TimeDelta::minutes(4), "clocks may be behind");
    assert_eq!(enrolled.trust.authorities.len(), 1);
    let detail = world.detail(node.id).await;
    assert_eq!((detail.node.state, detail.node.enrolled_at.is_some()), (NodeState::Enrolling, true));
    assert_eq!(world.events("nodes.enrolled").await.len(), 1);
    assert_eq!(world.count("SELECT count(*) FROM node_certificates").await, 1);
    let audited = "SELECT count(*) FROM audit_logs WHERE action = 'node.enroll' AND result = 'allowed' AND actor_kind = 'node'";
    assert_eq!(world.count(audited).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_fifty_enrolments_with_one_token_one_wins() {
    let world = World::new().await;
    let (node, token) = world.node("gpu-01").await;
    let attempts = (0..50).map(|_| world.enroll(&node, &token));
    let outcomes: Vec<Option<Code>> =
        futures_util::future::join_all(attempts).await.into_iter().map(code).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_none()).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Some(Code::TokenInvalid)).count(), 49);
    assert_eq!(world.count("SELECT count(*) FROM node_certificates").await, 1);
    assert_eq!(world.refusals().await.len(), 49, "each refusal stands in the trail");
    assert_eq!(world.events("nodes.enrolled").await.len(), 1);
}

#[tokio::test]
async fn every_refusal_looks_the_same_and_the_trail_has_the_reason() {
    let world = World::new().await;
    let (node, token) = world.node("gpu-01").await;
    let (other, other_token) = world.node("gpu-02").await;
    let mut answers = Vec::new();
    let mut attempt = async |node: &fleet::model::node::Node, token: &str, hostname: &str| {
        let mut request = world.enrolment(node, token);
        request.hostname = hostname.to_owned();
        match enroll(&world.fleet, &request, &world.origin()).await {
            Err(Failure::Problem(problem)) => answers.push(problem),
            other => panic!("{:?}", other.map(|_| ())),
        }
    };
    attempt(&node, "gnt_wrong", "gpu-01").await;
    attempt(&node, &other_token, "gpu-01").await;
    attempt(&other, &token, "gpu-02").await;
    attempt(&node, &token, "gpu-09").await;
    attempt(&node, &"x".repeat(5000), "gpu-01").await;
    let mut nobody = node.clone();
    nobody.id = world.test.db.ambient().id();
    attempt(&nobody, &token, "gpu-01").await;
    world.enroll(&node, &token).await.unwrap();
    attempt(&node, &token, "gpu-01").await;
    world.pass(TimeDelta::minutes(15));
    attempt(&other, &other_token, "gpu-02").await;
    assert!(answers.iter().all(|problem| *problem == answers[0]), "nothing can be told apart: {answers:?}");
    assert_eq!(answers[0].code, Code::TokenInvalid);
    assert_eq!(
        world.refusals().await,
        [
            "token_invalid",
            "ownership_required",
            "ownership_required",
            "unprocessable",
            "token_invalid",
            "ownership_required",
            "in_use",
            "token_expired"
        ]
    );
    assert_eq!(world.state(other.id).await, "bootstrap_issued");
}

#[tokio::test]
async fn a_request_that_cannot_be_certified_does_not_use_the_token_up() {
    let world = World::new().await;
    let (node, token) = world.node("gpu-01").await;
    let mut request = world.enrolment(&node, &token);
    request.csr_pem =
        "-----BEGIN CERTIFICATE REQUEST-----\nnonsense\n-----END CERTIFICATE REQUEST-----".to_owned();
    let refused = enroll(&world.fleet, &request, &world.origin()).await;
    assert_eq!(code(refused), Some(Code::ValidationError));
    world.enroll(&node, &token).await.unwrap();
}

#[tokio::test]
async fn a_new_bootstrap_token_outdates_the_one_before_and_is_not_for_enrolled_nodes() {
    let world = World::new().await;
    let (node, first) = world.node("gpu-01").await;
    let mut tx = world.write("node.bootstrap_token").await;
    let issued = node_bootstrap_token(&world.fleet, &mut tx, node.id).await.unwrap();
    tx.commit(None).await.unwrap();
    let second = text(&serde_json::to_value(&issued).unwrap()["token"]);
    assert!(
        issued.install_command.contains("/install/agent.sh") && !issued.install_command.contains(&second)
    );
    assert_eq!(code(world.enroll(&node, &first).await), Some(Code::TokenInvalid));
    assert_eq!(
        code(repair_token(&world, node.id).await),
        Some(Code::InvalidTransition),
        "there is nothing to repair"
    );
    world.enroll(&node, &second).await.unwrap();
    let mut tx = world.write("node.bootstrap_token").await;
    let again = node_bootstrap_token(&world.fleet, &mut tx, node.id).await;
    assert_eq!(code(again), Some(Code::InvalidTransition));
    let plain =
        format!("SELECT count(*) FROM node_tokens WHERE encode(token_hash, 'escape') LIKE '%{second}%'");
    assert_eq!(world.count(&plain).await, 0, "only hashes are kept");
}

#[tokio::test]
async fn a_repair_revokes_every_earlier_certificate_and_leaves_the_work_alone() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    world.onboarding_begin(node.id).await;
    renewal(&world, node.id).await.unwrap();
    let token = repair_token(&world, node.id).await.unwrap();
    world.enroll(&node, &token).await.unwrap();
    assert_eq!(world.count("SELECT count(*) FROM node_certificates WHERE revoked_at IS NOT NULL").await, 2);
    assert_eq!(world.count("SELECT count(*) FROM node_certificates WHERE revoked_at IS NULL").await, 1);
    assert_eq!(world.state(node.id).await, "enrolling", "a repair changes no state");
    assert_eq!(world.count("SELECT count(*) FROM node_tasks WHERE state = 'queued'").await, 1);
    assert_eq!(
        code(world.enroll(&node, &token).await),
        Some(Code::TokenInvalid),
        "a repair token is for one use too"
    );
}

#[tokio::test]
async fn a_renewal_supersedes_the_certificate_that_was_shown_and_a_lost_answer_is_given_again() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    let first = world.serial(node.id).await;
    world.pass(TimeDelta::seconds(1));
    let request = csr();
    let given = renewal_of(&world, node.id, &first, &request).await.unwrap();
    let live = "SELECT count(*) FROM node_certificates WHERE revoked_at IS NULL";
    assert_eq!(world.count(live).await, 1);
    // The answer was lost: the same key gets the same certificate, however often; another key gets none.
    for _ in 0..3 {
        assert_eq!(renewal_of(&world, node.id, &first, &request).await.unwrap(), given);
    }
    assert_eq!(code(renewal_by(&world, node.id, &first).await), Some(Code::TokenRevoked));
    assert_eq!(world.count("SELECT count(*) FROM node_certificates").await, 2);
    // The node is heard with it: from now on the one before is worth nothing.
    let second = world.serial(node.id).await;
    assert_ne!(first, second);
    first_use(&world.fleet, node.id, &second).await.unwrap();
    assert_eq!(code(renewal_of(&world, node.id, &first, &request).await), Some(Code::TokenRevoked));
    assert_eq!(code(renewal_by(&world, node.id, &first).await), Some(Code::TokenRevoked));
    assert_eq!(code(renewal_by(&world, node.id, "00").await), Some(Code::TokenRevoked), "nobody gave it");
    // A key is certified once.
    assert_eq!(code(renewal_of(&world, node.id, &second, &request).await), Some(Code::ValidationError));
    assert_eq!(world.count(live).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_fifty_renewals_with_one_certificate_one_counts() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    let shown = world.serial(node.id).await;
    let attempts = (0..50).map(|_| renewal_by(&world, node.id, &shown));
    let outcomes = futures_util::future::join_all(attempts).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert_eq!(world.count("SELECT count(*) FROM node_certificates WHERE revoked_at IS NULL").await, 1);
    let second = "INSERT INTO node_certificates (serial, node_id, authority_id, fingerprint, not_before, not_after, created_at)
        SELECT 'ff', node_id, authority_id, fingerprint, not_before, not_after, now() FROM node_certificates LIMIT 1";
    world.test.sql(second).await;
    let live = "SELECT count(*) FROM node_certificates WHERE revoked_at IS NULL AND serial = 'ff'";
    assert_eq!(world.count(live).await, 1, "whoever writes one, it is the only one");
    let from =
        "SELECT count(*) FROM node_certificates c JOIN node_certificates f ON f.serial = c.renewed_from
        WHERE c.serial = 'ff' AND f.superseded AND f.renewed_from IS NOT NULL";
    assert_eq!(world.count(from).await, 1, "a build that does not name it renews the one that counted");
}

#[tokio::test]
async fn a_node_makes_a_new_key_after_a_tenancy_and_all_before_it_is_revoked() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    first_use(&world.fleet, node.id, &world.serial(node.id).await).await.unwrap();
    world.pass(TimeDelta::seconds(1));
    let began = world.now();
    let rekeyed = async || {
        let mut tx = world.write("allocation.release_run").await;
        let done = node_rekey(&mut tx, node.id, began).await.unwrap() == Rekey::Done;
        tx.record("node", node.id, None::<&()>, None::<&()>).unwrap();
        tx.commit(None).await.unwrap();
        done
    };
    world.pass(TimeDelta::seconds(1));
    assert!(!rekeyed().await, "the certificate is the one of the tenancy");
    let before = world.serial(node.id).await;
    assert!(standing(&world, node.id).await.renew_now(&before));
    world.pass(TimeDelta::seconds(1));
    renewal(&world, node.id).await.unwrap();
    assert!(!rekeyed().await, "nobody has heard the node with it");
    let after = world.serial(node.id).await;
    first_use(&world.fleet, node.id, &after).await.unwrap();
    assert!(rekeyed().await && rekeyed().await);
    let now = standing(&world, node.id).await;
    assert!(!now.renew_now(&after));
    assert_eq!(now.worth(&after), Worth::Live);
    assert!(matches!(now.worth(&before), Worth::Superseded { .. }));
}

#[tokio::test]
async fn a_new_key_is_told_from_the_one_before_although_the_clocks_of_processes_differ() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    first_use(&world.fleet, node.id, &world.serial(node.id).await).await.unwrap();
    let began = world.now();
    let rekeyed = async || {
        let mut tx = world.write("allocation.release_run").await;
        let done = node_rekey(&mut tx, node.id, began).await.unwrap() == Rekey::Done;
        tx.record("node", node.id, None::<&()>, None::<&()>).unwrap();
        tx.commit(None).await.unwrap();
        done
    };
    // Given by a process that is ahead of the one that asks for a new key.
    let ahead = "UPDATE node_certificates SET created_at = created_at + interval '1 minute'";
    world.test.sql(ahead).await;
    assert!(!rekeyed().await, "the certificate is the one of the tenancy");
    let before = world.serial(node.id).await;
    assert!(standing(&world, node.id).await.renew_now(&before));
    // Given by a process that is behind the one that asked.
    renewal(&world, node.id).await.unwrap();
    let after = world.serial(node.id).await;
    assert!(!standing(&world, node.id).await.renew_now(&after));
    first_use(&world.fleet, node.id, &after).await.unwrap();
    assert!(rekeyed().await);
}

#[tokio::test]
async fn a_revoked_node_cannot_renew_and_a_renewing_one_has_bounds() {
    let world = World::new().await;
    let node = world.enrolled("gpu-01").await;
    for _ in 1..60 {
        world.pass(TimeDelta::seconds(1));
        renewal(&world, node.id).await.unwrap();
    }
    assert_eq!(code(renewal(&world, node.id).await), Some(Code::RateLimitExceeded));
    world.pass(TimeDelta::hours(1));
    renewal(&world, node.id).await.unwrap();
    let page = node_certificates(&world.fleet, &mut world.read().await, node.id, &KeyPageQuery::default())
        .await
        .unwrap();
    assert_eq!(page.items.iter().filter(|one| one.state == CertificateState::Valid).count(), 1);
    let serial = CertificateSerial::parse(world.serial(node.id).await).unwrap();
    let mut tx = world.write("node.certificate_revoke").await;
    let one =
        node_certificate_revoke(&mut tx, node.id, Some(&serial), &reason("it was copied")).await.unwrap();
    assert_eq!((one.len(), one[0].state), (1, CertificateState::Revoked));
    let again = node_certificate_revoke(&mut tx, node.id, Some(&serial), &reason("it was copied")).await;
    assert_eq!(code(again), Some(Code::InvalidTransition));
    let rest = node_certificate_revoke(&mut tx, node.id, None, &reason("it was stolen")).await;
    assert_eq!(code(rest), Some(Code::InvalidTransition), "there was only this one");
    tx.commit(None).await.unwrap();
    assert_eq!(code(renewal(&world, node.id).await), Some(Code::TokenRevoked));
    let token = repair_token(&world, node.id).await.unwrap();
    world.enroll(&node, &token).await.unwrap();
}
