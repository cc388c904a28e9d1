use chrono::TimeDelta;
use fleet::authority::model::authority::AuthorityState;
use fleet::authority::{Trust, model::Step, model::authority::Authority};
use kernel::{Code, Failure, ids::AuthorityId};
use trust::peer::PeerRefusal;

use super::kit::{Kit, code, csr, judge, reason};

async fn stage(kit: &Kit, trust: &Trust) -> AuthorityId {
    let mut tx = kit.write().await;
    let staged = trust.authority_stage(&mut tx, None).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(staged.state, AuthorityState::Staged);
    staged.id
}

async fn activate(kit: &Kit, trust: &Trust, id: AuthorityId, step: Step) -> Result<Authority, Failure> {
    let mut tx = kit.write().await;
    let activated = trust.authority_activate(&mut tx, id, step).await?;
    tx.commit(None).await.unwrap();
    Ok(activated)
}

async fn retire(kit: &Kit, trust: &Trust, id: AuthorityId, step: Step) -> Result<Authority, Failure> {
    let mut tx = kit.write().await;
    let retired = trust.authority_retire(&mut tx, id, step).await?;
    tx.commit(None).await.unwrap();
    Ok(retired)
}

async fn revoke(kit: &Kit, trust: &Trust, id: AuthorityId, step: Step) -> Result<Authority, Failure> {
    let mut tx = kit.write().await;
    let revoked = trust.authority_revoke(&mut tx, id, step).await?;
    tx.commit(None).await.unwrap();
    Ok(revoked)
}

fn forced() -> Step {
    Step { force: true, reason: Some(reason()) }
}

async fn states(kit: &Kit, trust: &Trust) -> Vec<String> {
    kit.authorities(trust).await.into_iter().map(|a| a.state.to_string()).collect()
}

#[tokio::test]
async fn a_rotation_waits_for_nodes_and_loses_none() {
    let (kit, trust) = Kit::started().await;
    let old = trust.issuing().await.unwrap().id();
    let node = kit.node(&[old], 1).await;
    let before = trust.issue_node(&csr(), node, TimeDelta::hours(24)).await.unwrap();
    kit.test
        .sql(&format!(
            "INSERT INTO node_certificates (serial, node_id, authority_id, fingerprint, not_before, not_after, created_at)
             VALUES ('{}', '{}', '{}', '', '{}', '{}', now())",
            before.serial, node.uuid(), old.uuid(), before.validity.not_before, before.validity.not_after
        ))
        .await;

    let new = stage(&kit, &trust).await;
    assert_eq!(trust.issuing().await.unwrap().id(), old, "not used before every node knows it");
    assert_eq!(trust.roots().await.unwrap().iter().map(|r| r.id).collect::<Vec<_>>(), [old, new]);
    let refused = activate(&kit, &trust, new, Step::default()).await;
    let Err(Failure::Problem(problem)) = refused else { panic!("{refused:?}") };
    assert_eq!((problem.code, &problem.details["nodes_confirmed"]), (Code::InvalidTransition, &0.into()));

    kit.confirm(node, &[old, new], 1).await;
    let listed = kit.authorities(&trust).await;
    assert_eq!((listed[1].nodes_confirmed, listed[1].nodes_total), (1, 1));
    assert_eq!(activate(&kit, &trust, new, Step::default()).await.unwrap().state, AuthorityState::Active);
    assert_eq!(states(&kit, &trust).await, ["grace", "active"]);
    let after = trust.issue_node(&csr(), node, TimeDelta::hours(24)).await.unwrap();
    assert_eq!(
        judge(&trust, &before.chain_pem, kit.now()).await,
        Ok(old),
        "the old certificate still counts"
    );
    assert_eq!(judge(&trust, &after.chain_pem, kit.now()).await, Ok(new));

    assert_eq!(code(retire(&kit, &trust, old, Step::default()).await), Code::InUse);
    kit.clock.advance(TimeDelta::hours(25));
    assert_eq!(retire(&kit, &trust, old, Step::default()).await.unwrap().state, AuthorityState::Retired);
    let at = before.validity.not_after;
    assert_eq!(judge(&trust, &before.chain_pem, at).await, Err(PeerRefusal::UnknownAuthority));
    assert!(trust.believes(new).await.unwrap() && !trust.believes(old).await.unwrap());
}

#[tokio::test]
async fn nodes_that_left_service_or_never_enrolled_hold_nothing_up() {
    let (kit, trust) = Kit::started().await;
    for (state, enrolled) in [("retired", "now()"), ("deleted", "now()"), ("bootstrap_issued", "NULL")] {
        let node = kit.node(&[], 0).await;
        kit.tamper(&format!(
            "UPDATE nodes SET state = '{state}', enrolled_at = {enrolled} WHERE id = '{}'",
            node.uuid()
        ))
        .await;
    }
    let new = stage(&kit, &trust).await;
    activate(&kit, &trust, new, Step::default()).await.unwrap();
    let offline = kit.node(&[new], 1).await;
    kit.tamper(&format!("UPDATE nodes SET state = 'offline' WHERE id = '{}'", offline.uuid())).await;
    let newer = stage(&kit, &trust).await;
    let refused = activate(&kit, &trust, newer, Step::default()).await;
    assert_eq!(code(refused), Code::InvalidTransition, "a node that is merely silent counts");
}

#[tokio::test]
async fn forcing_needs_a_reason_that_the_audit_trail_keeps() {
    let (kit, trust) = Kit::started().await;
    kit.node(&[], 1).await;
    let new = stage(&kit, &trust).await;
    let without = Step { force: true, reason: None };
    assert_eq!(code(activate(&kit, &trust, new, without).await), Code::ValidationError);
    activate(&kit, &trust, new, forced()).await.unwrap();
    let kept = format!(
        "SELECT count(*) FROM audit_logs WHERE target_kind = 'authority' AND target_id = '{new}: the old one leaked'"
    );
    assert_eq!(kit.count(&kept).await, 1);
    let told = "SELECT count(*) FROM outbox_events WHERE event_type = 'nodes.authority_changed' AND payload->>'reason' = 'the old one leaked'";
    assert_eq!(kit.count(told).await, 2, "of the one that came and the one that went");
}

#[tokio::test]
async fn a_step_that_the_state_does_not_allow_changes_nothing() {
    let (kit, trust) = Kit::started().await;
    let active = trust.issuing().await.unwrap().id();
    let staged = stage(&kit, &trust).await;
    assert_eq!(code(activate(&kit, &trust, active, forced()).await), Code::InvalidTransition);
    for id in [active, staged] {
        assert_eq!(code(retire(&kit, &trust, id, forced()).await), Code::InvalidTransition);
    }
    let mut tx = kit.write().await;
    assert_eq!(code(trust.authority_stage(&mut tx, None).await), Code::AlreadyExists);
    drop(tx);
    let unknown: AuthorityId = kit.test.db.ambient().id();
    assert_eq!(code(activate(&kit, &trust, unknown, forced()).await), Code::NotFound);
    revoke(&kit, &trust, staged, forced()).await.unwrap();
    assert_eq!(code(revoke(&kit, &trust, staged, forced()).await), Code::InvalidTransition);
    assert_eq!(states(&kit, &trust).await, ["active", "revoked"]);
}

#[tokio::test]
async fn a_revoked_authority_counts_nowhere_from_then_on_and_the_staged_one_takes_over() {
    let (kit, trust) = Kit::started().await;
    let other = kit.replica();
    let leaked = trust.issuing().await.unwrap().id();
    let certificate = trust.issue_node(&csr(), kit.node_id(), TimeDelta::hours(24)).await.unwrap();
    assert_eq!(judge(&other, &certificate.chain_pem, kit.now()).await, Ok(leaked));
    let alone = revoke(&kit, &trust, leaked, forced()).await;
    assert_eq!(code(alone), Code::InvalidTransition, "not without a successor");

    let heir = stage(&kit, &trust).await;
    kit.node(&[leaked], 1).await;
    assert_eq!(code(revoke(&kit, &trust, leaked, Step::because(reason())).await), Code::InvalidTransition);
    assert_eq!(revoke(&kit, &trust, leaked, forced()).await.unwrap().state, AuthorityState::Revoked);
    assert_eq!(trust.issuing().await.unwrap().id(), heir);
    let unknown = Err(PeerRefusal::UnknownAuthority);
    assert_eq!(judge(&trust, &certificate.chain_pem, kit.now()).await, unknown);
    kit.let_pass();
    assert_eq!(judge(&other, &certificate.chain_pem, kit.now()).await, unknown, "without any notification");
    assert_eq!(other.issuing().await.unwrap().id(), heir);
}

#[tokio::test]
async fn another_replica_hears_of_a_rotation_before_its_memory_ends() {
    let (kit, trust) = Kit::started().await;
    let db = kit.other_db();
    let other = kit.replica_on(&db);
    let (_wake, listening) = db.listen();
    assert_eq!(other.roots().await.unwrap().len(), 1);
    let staged = stage(&kit, &trust).await;
    testkit::eventually("the other replica believes the staged root", async || {
        // The clock hardly moves: only the notification can have told it.
        other.believes(staged).await.unwrap().then_some(())
    })
    .await;
    listening.abort();
}

#[tokio::test]
async fn of_two_concurrent_activations_one_wins() {
    let (kit, trust) = Kit::started().await;
    let other = kit.replica();
    let new = stage(&kit, &trust).await;
    let (a, b) = tokio::join!(activate(&kit, &trust, new, forced()), activate(&kit, &other, new, forced()));
    assert_eq!([a, b].into_iter().filter(Result::is_ok).count(), 1);
    assert_eq!(states(&kit, &trust).await, ["grace", "active"]);
}
