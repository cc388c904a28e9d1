use endpoint::Declaration;
use fleet::authority::{
    Signing, Trust, TrustSettings,
    model::{authority::AuthorityLifecycle, signer::SignerLifecycle},
};
use kernel::{Code, Permission, Secret};
use node_proto::SignerState;

use super::kit::{DOMAIN, Kit, code, csr, judge, signed, task};

#[tokio::test]
async fn the_lifecycles_in_the_code_equal_those_in_the_database() {
    let kit = Kit::new().await;
    kit.test.assert_lifecycle::<AuthorityLifecycle>().await;
    kit.test.assert_lifecycle::<SignerLifecycle>().await;
}

#[tokio::test]
async fn replicas_that_start_together_make_one_authority_one_signer_and_one_list() {
    let kit = Kit::new().await;
    let replicas: Vec<Trust> = (0..4).map(|_| kit.replica()).collect();
    for made in futures_util::future::join_all(replicas.iter().map(Trust::ensure)).await {
        made.unwrap();
    }
    replicas[0].ensure().await.unwrap();
    assert_eq!(kit.count("SELECT count(*) FROM authorities WHERE state = 'active'").await, 1);
    assert_eq!(kit.count("SELECT count(*) FROM signer_keys WHERE state = 'active'").await, 1);
    assert_eq!(kit.count("SELECT count(*) FROM signer_keysets").await, 1);
    assert_eq!(kit.count("SELECT count(*) FROM audit_logs WHERE action LIKE 'trust.%'").await, 2);
    assert_eq!(
        kit.count("SELECT count(*) FROM outbox_events WHERE event_type LIKE 'nodes.%_changed'").await,
        2
    );
    let (keyset, list) = replicas[1].keyset().await.unwrap();
    assert_eq!(keyset.serial, 1);
    assert_eq!((keyset.signers.len(), keyset.signers[0].state), (1, SignerState::Active));
    for replica in &replicas {
        assert_eq!(replica.keyset().await.unwrap().1, list);
        assert_eq!(replica.issuing().await.unwrap().id(), replicas[0].issuing().await.unwrap().id());
    }
}

#[tokio::test]
async fn certificates_and_work_of_one_replica_count_at_another() {
    let (kit, trust) = Kit::started().await;
    let (other, node) = (kit.replica(), kit.node_id());
    let issued = trust.issue_node(&csr(), node, chrono::TimeDelta::hours(24)).await.unwrap();
    assert_eq!(judge(&other, &issued.chain_pem, kit.now()).await, Ok(trust.issuing().await.unwrap().id()));
    let refused = trust.issue_node("nonsense", node, chrono::TimeDelta::hours(24)).await;
    assert_eq!(code(refused), Code::ValidationError);
    let work = signed(&kit, &trust).await;
    let (keyset, list) = other.keyset().await.unwrap();
    assert_eq!(work.open(&keyset).unwrap().signer_version, 1);
    let joining = other.join_info(node, "gpu-1", "https://nodes.example.org:8443").await.unwrap();
    assert_eq!(joining.root_sha256.len(), 1);
    assert_eq!(list.open(&trust.keyset_key().bytes()).unwrap(), keyset, "what the node pins opens the list");
    assert_eq!(joining.keyset_key, trust.keyset_key().hex());
    let told = other.for_nodes().await.unwrap();
    assert_eq!((told.authorities.len(), told.keyset), (1, list));
}

#[tokio::test]
async fn a_process_without_keys_checks_but_does_not_sign_or_rotate() {
    let (kit, trust) = Kit::started().await;
    let checker = kit.checker(7);
    checker.ensure().await.unwrap();
    assert!(!checker.signs() && trust.signs());
    assert!(signed(&kit, &trust).await.open(&checker.keyset().await.unwrap().0).is_ok());
    let refused = checker.sign_task(task(&kit)).await;
    assert!(format!("{:?}", refused.as_ref().unwrap_err()).contains("does not sign"));
    assert_eq!(code(refused), Code::ServiceUnavailable);
    assert_eq!(code(checker.signer_stage(&mut kit.write().await, None).await), Code::ServiceUnavailable);
    assert!(checker.issuing().await.is_ok(), "certificates are another matter");
}

#[tokio::test]
async fn with_another_master_key_nothing_is_issued_and_nothing_is_replaced() {
    let (kit, _trust) = Kit::started().await;
    let stranger = kit.checker(8);
    stranger.ensure().await.unwrap();
    assert_eq!(code(stranger.issuing().await), Code::ServiceUnavailable);
    assert_eq!(kit.count("SELECT count(*) FROM authorities").await, 1);
    assert!(!kit.authorities(&stranger).await[0].genuine);
}

#[tokio::test]
async fn when_the_signing_directory_is_lost_no_new_list_is_made_in_silence() {
    let (kit, _trust) = Kit::started().await;
    std::fs::remove_dir_all(kit.directory()).unwrap();
    let replica = kit.replica();
    replica.ensure().await.unwrap();
    assert_eq!(code(replica.sign_task(task(&kit)).await), Code::ServiceUnavailable);
    assert_eq!(kit.count("SELECT count(*) FROM signer_keysets").await, 1);
}

#[tokio::test]
async fn reading_needs_one_permission_and_changing_another() {
    let (_kit, trust) = Kit::started().await;
    let endpoints = fleet::authority::endpoints(&trust);
    let all: Vec<&Declaration> = endpoints.iter().map(|e| e.declaration()).collect();
    let ids: Vec<&str> = all.iter().map(|d| d.id).collect();
    for id in [
        "authority_list",
        "authority_stage",
        "authority_activate",
        "authority_retire",
        "authority_revoke",
        "signer_list",
        "signer_stage",
        "signer_activate",
        "signer_retire",
        "signer_revoke",
        "keyset_get",
    ] {
        assert!(ids.contains(&id), "{id}");
    }
    for d in all {
        let expected = if d.method == "GET" { Permission::FleetRead } else { Permission::TrustManage };
        assert_eq!(d.permission, Some(expected), "{}", d.id);
        assert_eq!(d.audit.is_some(), d.method != "GET", "{}", d.id);
    }
}

#[tokio::test]
async fn a_trust_domain_must_be_one() {
    let kit = Kit::new().await;
    for bad in ["", "a/b", "UPPER", "spaced out", "ü"] {
        let settings = TrustSettings {
            trust_domain: bad.to_owned(),
            master_key: Secret::new([7; 32]),
            signing: Signing::Custody(kit.custody()),
        };
        assert!(Trust::new(kit.test.db.clone(), settings).is_err(), "{bad} is not like {DOMAIN}");
    }
}

#[tokio::test]
async fn while_the_database_cannot_be_reached_what_was_known_is_used() {
    let (kit, trust) = Kit::started().await;
    let db = kit.other_db();
    let other = kit.replica_on(&db);
    let known = other.keyset().await.unwrap();
    db.close();
    kit.let_pass();
    assert_eq!(other.keyset().await.unwrap(), known);
    assert_eq!(signed(&kit, &other).await.signer_version, 1);
    assert_eq!(other.issuing().await.unwrap().id(), trust.issuing().await.unwrap().id());
}
