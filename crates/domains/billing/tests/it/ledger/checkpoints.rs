//! Heads are signed once a day, with a key that is not in the database.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use billing::{
    api::{Account, PostingKind},
    service::checkpoints::{checkpoints_sign, keys},
};
use chrono::TimeDelta;
use kernel::{
    hex::{self, Hex},
    ledger::{Checkpoint, ExportLine, FaultReason, key_id},
};

use super::kit::{self, Kit, SEED, verify_export};

const TOPUP: [(Account, i64); 2] = [(Account::Prepaid, 100), (Account::CashStripe, -100)];

async fn count(kit: &Kit) -> i64 {
    kit.one("SELECT count(*) FROM ledger_checkpoints").await
}

#[tokio::test]
async fn a_chain_is_signed_once_a_day_and_only_when_it_moved() {
    let kit = Kit::new().await;
    assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 0, "there is no chain");
    kit.post(PostingKind::Topup, None, &TOPUP).await;
    assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 1);
    kit.post(PostingKind::Topup, None, &TOPUP).await;
    assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 0, "it was signed today");
    kit.pass(TimeDelta::days(1));
    assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 1);
    kit.pass(TimeDelta::days(1));
    assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 0, "it did not move");
    // A clock that went back signs nothing for a day before the last.
    kit.pass(TimeDelta::days(-5));
    kit.post(PostingKind::Topup, None, &TOPUP).await;
    assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 0);
    assert_eq!(count(&kit).await, 2);
    let found = kit.verify().await;
    assert!(found.ok && found.checkpoints == 2 && found.head.checkpoint_seq == 2, "{found:?}");
}

#[tokio::test]
async fn several_replicas_sign_a_chain_once() {
    let kit = Kit::new().await;
    kit.post(PostingKind::Topup, None, &TOPUP).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let billing = kit.billing.clone();
        tasks.spawn(async move { checkpoints_sign(&billing).await.unwrap() });
    }
    // Those that met another one at work leave the chain to it.
    let signed: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!((signed, count(&kit).await), (1, 1));
    assert!(kit.verify().await.ok);
}

#[tokio::test]
async fn many_chains_are_signed_in_one_turn() {
    let kit = Kit::new().await;
    let sql = "SELECT count(ledger_append(ROW(gen_random_uuid(), 'USD', now(), gen_random_uuid(),
            'topup', NULL, 'many', NULL, 'system', NULL, gen_random_uuid())::new_posting,
                ROW(ARRAY['prepaid', 'cash_stripe'],
            ARRAY[n, -n], ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::uuid[],
            ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::timestamptz[], ARRAY[NULL, NULL]::timestamptz[])::line_batch))
        FROM generate_series(1, 1203::bigint) AS n";
    assert_eq!(kit.one::<i64>(sql).await, 1203);
    assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 1203);
    let found = billing::service::chains::chains_verify(&kit.billing).await.unwrap();
    assert!(found.ok, "{found:?}");
    assert_eq!((found.chains, found.checkpoints), (1203, 1203));
}

#[tokio::test]
async fn a_broken_chain_is_not_signed() {
    let kit = Kit::busy().await;
    kit.pass(TimeDelta::days(3));
    let signed: i64 = kit.one("SELECT max(seq) FROM ledger_checkpoints").await;
    for seq in ["(SELECT seq FROM ledger_chains WHERE org_id = $org)".to_owned(), signed.to_string()] {
        let flip = format!(
            "UPDATE ledger_postings SET hash = set_byte(hash, 0, get_byte(hash, 0) # 1) WHERE org_id = $org AND seq = {seq}"
        );
        kit.tamper(&flip).await;
        assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 0);
        kit.tamper(&flip).await;
    }
    assert_eq!(checkpoints_sign(&kit.billing).await.unwrap(), 1);
}

#[tokio::test]
async fn the_key_is_named_in_the_answer_and_in_the_export() {
    let kit = Kit::busy().await;
    let pair = Ed25519KeyPair::from_seed_unchecked(&SEED).unwrap();
    let public_key = pair.public_key().as_ref().to_vec();
    let found = kit.verify().await;
    assert_eq!(found.keys, keys(&kit.billing).unwrap());
    assert_eq!(found.keys[0].public_key, Hex(public_key.clone()));
    assert_eq!(found.keys[0].key_id, hex::encode(&kernel::digest::sha256(&public_key)[..8]));
    let export = kit.export().await;
    let verified = verify_export(&export, std::slice::from_ref(&public_key)).unwrap();
    assert_eq!(verified.keys.into_iter().collect::<Vec<_>>(), [key_id(&public_key)]);
    assert!(verify_export(&export, &[vec![1; 32]]).is_err(), "a key that is not trusted");
}

#[tokio::test]
async fn a_chain_written_anew_and_signed_with_another_key_is_found() {
    let kit = Kit::busy().await;
    let export = kit.export().await;
    let thief = Ed25519KeyPair::from_seed_unchecked(&[66; 32]).unwrap();
    let public_key = thief.public_key().as_ref().to_vec();
    for line in export.lines() {
        let ExportLine::Checkpoint(checkpoint) = serde_json::from_str(line).unwrap() else { continue };
        let (key_id, public_key) = (key_id(&public_key), Hex(public_key.clone()));
        let mut forged = Checkpoint { key_id, public_key, ..*checkpoint };
        forged.signature = Hex(thief.sign(&forged.message()).as_ref().to_vec());
        kit.tamper(&format!(
            "UPDATE ledger_checkpoints SET key_id = '{}', public_key = '\\x{}', signature = '\\x{}' WHERE seq = {}",
            forged.key_id, forged.public_key, forged.signature, forged.seq
        ))
        .await;
    }
    let fault = kit.verify().await.fault.unwrap();
    assert_eq!(fault.reason, FaultReason::CheckpointForged);
}

#[tokio::test]
async fn a_new_key_goes_on_and_the_former_one_is_trusted_when_it_is_named() {
    let kit = Kit::busy().await;
    let former = keys(&kit.billing).unwrap().remove(0).public_key.0;
    kit.pass(TimeDelta::days(1));
    let renewed = kit::billing(&kit.test, [10; 32]);
    assert_eq!(checkpoints_sign(&renewed).await.unwrap(), 1);
    let verify = async |billing| billing::service::chains::chain_verify(&billing, kit.org).await.unwrap();
    let unnamed = verify(renewed.clone()).await;
    assert_eq!(unnamed.fault.unwrap().reason, FaultReason::CheckpointForged);
    let named = verify(renewed.with_former_checkpoint_keys(vec![former])).await;
    assert!(named.ok && named.checkpoints == 3, "{named:?}");
    assert_eq!(named.keys.iter().map(|key| key.current).collect::<Vec<_>>(), [true, false]);
}
