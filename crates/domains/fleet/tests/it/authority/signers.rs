use chrono::TimeDelta;
use fleet::authority::{Trust, model::Step, model::signer::Signer};
use kernel::{Code, Failure};
use node_proto::{SignerState, TaskError};
use trust::signer::{CustodyError, KeyCustody as _};

use super::kit::{Kit, code, reason, signed};

async fn stage(kit: &Kit, trust: &Trust) -> Signer {
    let mut tx = kit.write().await;
    let staged = trust.signer_stage(&mut tx, None).await.unwrap();
    tx.commit(None).await.unwrap();
    staged
}

async fn activate(kit: &Kit, trust: &Trust, version: u32, step: Step) -> Result<Signer, Failure> {
    let mut tx = kit.write().await;
    let activated = trust.signer_activate(&mut tx, version, step).await?;
    tx.commit(None).await.unwrap();
    Ok(activated)
}

async fn retire(kit: &Kit, trust: &Trust, version: u32) -> Result<Signer, Failure> {
    let mut tx = kit.write().await;
    let retired = trust.signer_retire(&mut tx, version, Step::default()).await?;
    tx.commit(None).await.unwrap();
    Ok(retired)
}

async fn revoke(kit: &Kit, trust: &Trust, version: u32) -> Result<Signer, Failure> {
    let mut tx = kit.write().await;
    let revoked = trust.signer_revoke(&mut tx, version, reason()).await?;
    tx.commit(None).await.unwrap();
    Ok(revoked)
}

async fn states(kit: &Kit, trust: &Trust) -> Vec<(u32, String, bool)> {
    let list = kit.signers(trust).await;
    list.into_iter().map(|s| (s.signer_version, s.state.to_string(), s.genuine)).collect()
}

fn is(version: u32, state: &str) -> (u32, String, bool) {
    (version, state.to_owned(), true)
}

#[tokio::test]
async fn a_rotation_waits_for_nodes_and_old_work_counts_until_its_signer_is_retired() {
    let (kit, trust) = Kit::started().await;
    let (other, pinned) = (kit.replica(), trust.keyset_key().bytes());
    let node = kit.node(&[], 1).await;
    let old_work = signed(&kit, &trust).await;
    let (on_node, _) = trust.keyset().await.unwrap();

    let staged = stage(&kit, &trust).await;
    assert_eq!((staged.signer_version, staged.keyset_serial, staged.nodes_confirmed), (2, Some(2), 0));
    assert_eq!(signed(&kit, &trust).await.signer_version, 1, "not used before every node knows it");
    let refused = activate(&kit, &trust, 2, Step::default()).await;
    let Err(Failure::Problem(problem)) = refused else { panic!("{refused:?}") };
    assert_eq!((problem.code, &problem.details["nodes_total"]), (Code::InvalidTransition, &1.into()));

    // The node takes the list over, as its agent does, and says so.
    let (_, list) = trust.keyset().await.unwrap();
    let on_node = list.open_newer(&pinned, &on_node).unwrap();
    kit.confirm(node, &[], on_node.serial).await;
    assert_eq!(activate(&kit, &trust, 2, Step::default()).await.unwrap().state.name(), "active");
    assert_eq!(states(&kit, &trust).await, [is(1, "grace"), is(2, "active")]);
    let new_work = signed(&kit, &trust).await;
    assert_eq!(new_work.signer_version, 2);
    assert!(new_work.open(&on_node).is_ok(), "the list from before the activation is enough");
    kit.let_pass();
    assert_eq!(signed(&kit, &other).await.signer_version, 2, "every replica signs with the new one");
    let (keyset, list) = other.keyset().await.unwrap();
    assert_eq!(list.open_newer(&pinned, &on_node).unwrap(), keyset);
    assert!(old_work.open(&keyset).is_ok(), "what the old one signed still counts");

    retire(&kit, &trust, 1).await.unwrap();
    let (keyset, _) = trust.keyset().await.unwrap();
    assert_eq!((keyset.serial, keyset.signers.len()), (4, 1));
    assert_eq!(old_work.open(&keyset), Err(TaskError::UnknownSigner));
    assert!(matches!(kit.custody().sign(1, b"x"), Err(CustodyError::Missing(1))), "its key is destroyed");
    assert_eq!(states(&kit, &trust).await, [is(1, "retired"), is(2, "active")]);
    assert_eq!(
        kit.count("SELECT count(*) FROM outbox_events WHERE event_type = 'nodes.signer_changed'").await,
        5
    );
}

#[tokio::test]
async fn revoking_the_active_signer_needs_a_staged_one_which_then_signs() {
    let (kit, trust) = Kit::started().await;
    let old_work = signed(&kit, &trust).await;
    let alone = revoke(&kit, &trust, 1).await;
    let Err(Failure::Problem(problem)) = alone else { panic!("{alone:?}") };
    assert_eq!(problem.code, Code::InvalidTransition);
    assert!(problem.suggestion.unwrap().contains("Stage a signer first"));

    stage(&kit, &trust).await;
    kit.node(&[], 1).await;
    assert_eq!(revoke(&kit, &trust, 1).await.unwrap().state.name(), "revoked", "it does not wait for nodes");
    let (keyset, _) = trust.keyset().await.unwrap();
    assert_eq!(
        keyset.signers.iter().map(|s| (s.signer_version, s.state)).collect::<Vec<_>>(),
        [(2, SignerState::Active)]
    );
    assert_eq!(old_work.open(&keyset), Err(TaskError::UnknownSigner));
    assert_eq!(signed(&kit, &trust).await.signer_version, 2);
    assert_eq!(states(&kit, &trust).await, [is(1, "revoked"), is(2, "active")]);
    let kept = "SELECT count(*) FROM audit_logs WHERE target_kind = 'signer' AND target_id = '1: the old one leaked'";
    assert_eq!(kit.count(kept).await, 1);
}

#[tokio::test]
async fn a_step_that_the_state_does_not_allow_makes_no_list() {
    let (kit, trust) = Kit::started().await;
    stage(&kit, &trust).await;
    let mut tx = kit.write().await;
    assert_eq!(code(trust.signer_stage(&mut tx, None).await), Code::AlreadyExists);
    drop(tx);
    let forced = || Step { force: true, reason: Some(reason()) };
    for version in [1, 2] {
        assert_eq!(code(retire(&kit, &trust, version).await), Code::InvalidTransition);
    }
    assert_eq!(code(activate(&kit, &trust, 1, forced()).await), Code::InvalidTransition);
    assert_eq!(code(activate(&kit, &trust, 9, forced()).await), Code::NotFound);
    assert_eq!(
        code(activate(&kit, &trust, 2, Step { force: true, reason: None }).await),
        Code::ValidationError
    );
    assert_eq!(trust.keyset().await.unwrap().0.serial, 2);
    assert_eq!(kit.count("SELECT count(*) FROM signer_keysets").await, 2);
}

#[tokio::test]
async fn a_staging_that_was_rolled_back_leaves_nothing_that_nodes_would_believe() {
    let (kit, trust) = Kit::started().await;
    let mut tx = kit.write().await;
    let lost = trust.signer_stage(&mut tx, None).await.unwrap();
    tx.roll_back().await;
    assert_eq!(trust.keyset().await.unwrap().0.serial, 1);
    let staged = stage(&kit, &trust).await;
    assert_eq!(
        (staged.signer_version, &staged.public_key),
        (2, &lost.public_key),
        "the same key is found again"
    );
    assert!(
        staged.keyset_serial > lost.keyset_serial,
        "a serial that was signed is not used for another list"
    );
}

#[tokio::test]
async fn after_a_restore_from_a_backup_new_lists_are_newer_than_any_that_nodes_have() {
    let (kit, trust) = Kit::started().await;
    stage(&kit, &trust).await;
    activate(&kit, &trust, 2, Step::default()).await.unwrap();
    let on_nodes = trust.keyset().await.unwrap().0.serial;
    // The database as it was after the first start.
    kit.tamper("DELETE FROM signer_keysets WHERE serial > 1; DELETE FROM signer_keys WHERE signer_version > 1; UPDATE signer_keys SET state = 'active'").await;
    let restored = kit.replica();
    assert_eq!(restored.keyset().await.unwrap().0.serial, 1);
    let staged = stage(&kit, &restored).await;
    assert!(staged.keyset_serial > Some(on_nodes));
    kit.clock.advance(TimeDelta::seconds(3));
    assert_eq!(restored.keyset().await.unwrap().0.signers.len(), 2);
}
