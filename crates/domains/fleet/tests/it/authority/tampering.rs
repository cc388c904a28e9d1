//! A database superuser, who may write whatever they like.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use chrono::TimeDelta;
use fleet::authority::model::authority::AuthorityState;
use fleet::authority::{Trust, model::Step};
use kernel::{Ambient, Code, Secret, hex::Hex, ids::AuthorityId};
use node_proto::{
    Keyset, SignedKeyset, SignedTask, SignerKey, SignerState, TaskError, canonical, keyset,
    task::signing_bytes, text::Base64,
};
use trust::{
    ca::{Authority, Serial, sealer},
    peer::PeerRefusal,
};

use super::kit::{DOMAIN, Kit, code, csr, judge, reason, signed, task};

fn hex(bytes: &[u8]) -> String {
    Hex(bytes.to_vec()).to_string()
}

fn forced() -> Step {
    Step { force: true, reason: Some(reason()) }
}

/// A signer of theirs, and a list that says it is active, signed with their own key.
struct Intruder {
    key: Ed25519KeyPair,
}

impl Intruder {
    fn new() -> Self {
        Self { key: Ed25519KeyPair::generate().unwrap() }
    }

    fn public_key(&self) -> Vec<u8> {
        self.key.public_key().as_ref().to_vec()
    }

    fn list(&self, kit: &Kit, serial: u64, version: u32) -> SignedKeyset {
        let public_key = Base64(self.public_key());
        let signers = vec![SignerKey { signer_version: version, state: SignerState::Active, public_key }];
        let document = canonical::encode(&Keyset { serial, issued_at: kit.now(), signers }).unwrap();
        let signature = self.key.sign(&keyset::signing_bytes(&document)).as_ref().to_vec();
        SignedKeyset { document: Base64(document), signature: Base64(signature) }
    }

    async fn insert_list(&self, kit: &Kit, serial: u64, list: &SignedKeyset) {
        kit.tamper(&format!(
            "INSERT INTO signer_keysets VALUES ({serial}, '\\x{}', '\\x{}', now())",
            hex(&list.document.0),
            hex(&list.signature.0)
        ))
        .await;
    }

    fn work(&self, kit: &Kit, version: u32) -> SignedTask {
        let mut task = task(kit);
        task.signer_version = version;
        let payload = task.canonical().unwrap();
        let signature = self.key.sign(&signing_bytes(&payload)).as_ref().to_vec();
        SignedTask { payload: Base64(payload), signer_version: version, signature: Base64(signature) }
    }
}

async fn refuses(trust: &Trust, work: &SignedTask) -> bool {
    let (keyset, _) = trust.keyset().await.unwrap();
    matches!(work.open(&keyset), Err(TaskError::UnknownSigner | TaskError::BadSignature))
}

#[tokio::test]
async fn a_signer_written_into_the_database_signs_nothing_that_counts_and_never_gets_into_a_list() {
    let (kit, trust) = Kit::started().await;
    let intruder = Intruder::new();
    let key = hex(&intruder.public_key());
    kit.tamper(&format!("INSERT INTO signer_keys VALUES (7, 'staged', '\\x{key}', 1, now(), now())")).await;
    kit.let_pass();
    assert!(refuses(&trust, &intruder.work(&kit, 7)).await);
    let shown = kit.signers(&trust).await;
    assert_eq!(
        shown.iter().map(|s| (s.signer_version, s.genuine)).collect::<Vec<_>>(),
        [(1, true), (7, false)]
    );

    // Whoever believes the row and activates it is told so; the row can be put away.
    let mut tx = kit.write().await;
    assert_eq!(code(trust.signer_activate(&mut tx, 7, forced()).await), Code::InvalidTransition);
    drop(tx);
    let mut tx = kit.write().await;
    assert_eq!(trust.signer_revoke(&mut tx, 7, reason()).await.unwrap().state.name(), "revoked");
    tx.commit(None).await.unwrap();
    let mut tx = kit.write().await;
    let staged = trust.signer_stage(&mut tx, None).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(staged.signer_version, 8);
    let (keyset, _) = trust.keyset().await.unwrap();
    assert_eq!(keyset.signers.iter().map(|s| s.signer_version).collect::<Vec<_>>(), [1, 8]);
    assert!(refuses(&trust, &intruder.work(&kit, 8)).await);
}

#[tokio::test]
async fn a_changed_public_key_in_a_row_is_not_taken_over_by_the_next_rotation() {
    let (kit, trust) = Kit::started().await;
    let intruder = Intruder::new();
    let genuine = trust.keyset().await.unwrap().0.public_key(1).unwrap().to_vec();
    kit.tamper(&format!("UPDATE signer_keys SET public_key = '\\x{}'", hex(&intruder.public_key()))).await;
    let mut tx = kit.write().await;
    trust.signer_stage(&mut tx, None).await.unwrap();
    tx.commit(None).await.unwrap();
    let (keyset, _) = trust.keyset().await.unwrap();
    assert_eq!((keyset.serial, keyset.public_key(1)), (2, Some(&genuine[..])));
    assert!(!kit.signers(&trust).await[0].genuine);
}

#[tokio::test]
async fn a_list_that_our_key_did_not_sign_is_passed_over_wherever_it_stands() {
    let (kit, trust) = Kit::started().await;
    let (intruder, fresh) = (Intruder::new(), kit.replica());
    intruder.insert_list(&kit, 1_000, &intruder.list(&kit, 1_000, 1)).await;
    // A genuine list under a higher number, and a genuine document with another signature.
    let (_, genuine) = trust.keyset().await.unwrap();
    intruder.insert_list(&kit, 1_001, &genuine).await;
    let mixed =
        SignedKeyset { document: genuine.document.clone(), signature: intruder.list(&kit, 1, 1).signature };
    intruder.insert_list(&kit, 1_002, &mixed).await;
    kit.let_pass();
    for replica in [&trust, &fresh, &kit.checker(7)] {
        let (keyset, list) = replica.keyset().await.unwrap();
        assert_eq!((keyset.serial, &list), (1, &genuine));
        assert!(refuses(replica, &intruder.work(&kit, 1)).await);
    }
    assert!(signed(&kit, &trust).await.open(&trust.keyset().await.unwrap().0).is_ok(), "signing goes on");
    let mut tx = kit.write().await;
    trust.signer_stage(&mut tx, None).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(trust.keyset().await.unwrap().0.serial, 1_003, "rotation goes on, above their numbers");
}

#[tokio::test]
async fn removing_the_newest_list_does_not_bring_back_a_revoked_signer() {
    let (kit, trust) = Kit::started().await;
    let old_work = signed(&kit, &trust).await;
    let mut tx = kit.write().await;
    trust.signer_stage(&mut tx, None).await.unwrap();
    tx.commit(None).await.unwrap();
    let mut tx = kit.write().await;
    trust.signer_revoke(&mut tx, 1, reason()).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(trust.keyset().await.unwrap().0.serial, 3);
    kit.tamper("DELETE FROM signer_keysets WHERE serial > 1").await;
    kit.let_pass();
    assert_eq!(trust.keyset().await.unwrap().0.serial, 3);
    assert!(refuses(&trust, &old_work).await);
}

async fn insert_authority(kit: &Kit, id: AuthorityId, state: &str, authority: &Authority, sealed: &[u8]) {
    kit.tamper(&format!(
        "INSERT INTO authorities VALUES ('{}', '{state}', '{}', '{}', '\\x{}', now() + interval '1 year', 1, now(), now())",
        id.uuid(),
        authority.root_pem(),
        authority.issuing_pem(),
        hex(sealed)
    ))
    .await;
}

#[tokio::test]
async fn an_authority_written_into_the_database_is_neither_believed_nor_used() {
    let (kit, trust) = Kit::started().await;
    let ours = trust.issuing().await.unwrap().id();
    let ambient: &Ambient = kit.test.db.ambient();
    kit.let_pass();
    // Complete, and sealed as ours are, but under a master key of their own.
    let theirs = Authority::generate(ambient, DOMAIN, ambient.id()).unwrap();
    let sealed = theirs.seal(ambient, &sealer(&Secret::new([66; 32])).unwrap()).unwrap();
    insert_authority(&kit, theirs.id(), "staged", &theirs, &sealed).await;
    kit.let_pass();
    let uri = format!("spiffe://{DOMAIN}/node/{}", kit.node_id());
    let forged = theirs
        .issue_node(&csr(), &uri, Serial::random(ambient), kit.now(), kit.now() + TimeDelta::hours(1))
        .unwrap();
    for replica in [&trust, &kit.replica()] {
        assert_eq!(judge(replica, &forged.chain_pem, kit.now()).await, Err(PeerRefusal::UnknownAuthority));
        assert_eq!(replica.roots().await.unwrap().iter().map(|r| r.id).collect::<Vec<_>>(), [ours]);
        assert_eq!(replica.issuing().await.unwrap().id(), ours);
    }
    let shown = kit.authorities(&trust).await;
    assert_eq!(shown.iter().map(|a| a.genuine).collect::<Vec<_>>(), [true, false]);
    let mut tx = kit.write().await;
    assert_eq!(code(trust.authority_activate(&mut tx, theirs.id(), forced()).await), Code::Unprocessable);
    drop(tx);
    let mut tx = kit.write().await;
    assert_eq!(
        trust.authority_revoke(&mut tx, theirs.id(), forced()).await.unwrap().state,
        AuthorityState::Revoked
    );
    tx.commit(None).await.unwrap();
}

#[tokio::test]
async fn sealed_keys_that_were_moved_to_another_row_and_readable_columns_count_for_nothing() {
    let (kit, trust) = Kit::started().await;
    let ours = trust.issuing().await.unwrap();
    kit.tamper(
        "INSERT INTO authorities SELECT gen_random_uuid(), 'grace', root_certificate, issuing_certificate, sealed, not_after, 1,
         created_at, updated_at FROM authorities;
         UPDATE authorities SET root_certificate = 'nonsense' WHERE state = 'active'",
    )
    .await;
    kit.let_pass();
    let fresh = kit.replica();
    let roots = fresh.roots().await.unwrap();
    assert_eq!(roots.len(), 1);
    assert_eq!((roots[0].id, &roots[0].root_pem), (ours.id(), &ours.root_pem()));
    assert_eq!(fresh.issuing().await.unwrap().id(), ours.id());
    let issued = fresh.issue_node(&csr(), kit.node_id(), TimeDelta::hours(1)).await.unwrap();
    assert_eq!(judge(&trust, &issued.chain_pem, kit.now()).await, Ok(ours.id()));
}

#[tokio::test]
async fn an_exchanged_active_row_stops_issuing_rather_than_issuing_from_it() {
    let (kit, trust) = Kit::started().await;
    let ambient = kit.test.db.ambient();
    let theirs = Authority::generate(ambient, DOMAIN, ambient.id()).unwrap();
    let sealed = theirs.seal(ambient, &sealer(&Secret::new([66; 32])).unwrap()).unwrap();
    kit.tamper("DELETE FROM authorities").await;
    insert_authority(&kit, theirs.id(), "active", &theirs, &sealed).await;
    kit.let_pass();
    trust.ensure().await.unwrap();
    assert_eq!(code(trust.issuing().await), Code::ServiceUnavailable);
    assert_eq!(kit.count("SELECT count(*) FROM authorities").await, 1);
}

#[tokio::test]
async fn who_takes_the_newest_list_away_does_not_have_the_keys_it_names_destroyed() {
    let (kit, trust) = Kit::started().await;
    let mut tx = kit.write().await;
    trust.signer_stage(&mut tx, Some(reason())).await.unwrap();
    tx.commit(None).await.unwrap();
    kit.tamper(
        "DELETE FROM signer_keysets WHERE serial = (SELECT max(serial) FROM signer_keysets);
         UPDATE signer_keys SET state = 'retired' WHERE signer_version = 2",
    )
    .await;
    // A process that has just started and remembers no newer list.
    kit.replica().ensure().await.unwrap();
    assert!(kit.directory().join("signer-2.pk8").exists());
}
