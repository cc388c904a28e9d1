//! Each kind of disagreement, made on purpose.

use capacity::{
    jobs::consistency::check_once,
    model::discrepancy::{DiscrepancyKind as Kind, DiscrepancyState},
    service::discrepancies::{discrepancy_get, discrepancy_list},
};
use chrono::TimeDelta;
use kernel::{
    PageQuery,
    ids::{NodeId, OrgId, SlotId},
};
use uuid::Uuid;

use super::healthy::Healthy;

/// Breaks something, sees it found once and kept open, sees that nothing else was changed, mends it, sees it resolved.
async fn is_found(healthy: &Healthy, (kind, subject): (Kind, &str), mend: &str) {
    let before = healthy.fingerprint().await;
    let checked = check_once(&healthy.kit.capacity).await.unwrap();
    assert_eq!(checked.new, [(kind, subject.to_owned())]);
    let again = check_once(&healthy.kit.capacity).await.unwrap();
    assert_eq!((again.new.len(), again.resolved), (0, 0), "it is the same one");
    assert_eq!(again.open.iter().map(|(_, open)| open).sum::<i64>(), 1);
    assert_eq!(healthy.fingerprint().await, before, "looking changes nothing");
    let mut read = healthy.kit.test.db.read(&healthy.kit.permit()).await.unwrap();
    let open = Some(DiscrepancyState::Open);
    let listed = discrepancy_list(&mut read, Some(kind), open, &PageQuery::default()).await.unwrap();
    let [row] = &listed.items[..] else { panic!("{listed:?}") };
    assert_eq!((row.subject.as_str(), row.suggestion.as_str()), (subject, kind.suggestion()));
    assert!(!row.message.is_empty());
    healthy.kit.tamper(mend).await;
    let mended = check_once(&healthy.kit.capacity).await.unwrap();
    assert_eq!((mended.new.len(), mended.resolved), (0, 1));
    let row = discrepancy_get(&mut read, row.id).await.unwrap();
    assert_eq!(row.state, DiscrepancyState::Resolved);
}

#[tokio::test]
async fn a_claim_of_an_allocation_that_is_over() {
    let healthy = Healthy::new().await;
    let (id, now) = (healthy.slice.uuid(), healthy.kit.now().to_rfc3339());
    healthy.kit.reports(healthy.shared, &[], &[]).await;
    healthy
        .kit
        .tamper(&format!(
            "UPDATE allocations SET state = 'failed', finished_at = '{now}', state_changed_at = '{now}' WHERE id = '{id}'"
        ))
        .await;
    let mend = format!(
        "UPDATE allocations SET state = 'active', finished_at = NULL, state_changed_at = '{now}' WHERE id = '{id}'"
    );
    is_found(&healthy, (Kind::ClaimOfEnded, &healthy.slice.to_string()), &mend).await;
}

#[tokio::test]
async fn an_allocation_that_lacks_a_claim() {
    let healthy = Healthy::new().await;
    let (id, now) = (healthy.machine.uuid(), healthy.kit.now().to_rfc3339());
    // The claim on the node itself: no slot is left alone by it.
    let claim = format!("allocation_id = '{id}' AND slot_id IS NULL");
    healthy.kit.tamper(&format!("UPDATE capacity_claims SET freed_at = '{now}' WHERE {claim}")).await;
    let mend = format!("UPDATE capacity_claims SET freed_at = NULL WHERE {claim}");
    is_found(&healthy, (Kind::ClaimMissing, &healthy.machine.to_string()), &mend).await;
}

#[tokio::test]
async fn a_taken_slot_that_nobody_holds() {
    let healthy = Healthy::new().await;
    let slot = healthy.kit.free(healthy.shared).await[0];
    let (id, old) = (slot.uuid(), (healthy.kit.now() - TimeDelta::minutes(2)).to_rfc3339());
    let set = |state: &str| {
        format!(
            "UPDATE node_resource_slots SET state = '{state}', updated_at = '{old}' WHERE id = '{id}'; {RECOUNT}"
        )
    };
    healthy.kit.tamper(&set("cleaning")).await;
    // A slot whose allocation is over is cleaned by a workflow of its own.
    healthy.kit.run(&slot.to_string()).await;
    assert_eq!(check_once(&healthy.kit.capacity).await.unwrap().new, []);
    healthy.kit.run_ends(&slot.to_string()).await;
    is_found(&healthy, (Kind::SlotUnclaimed, &slot.to_string()), &set("available")).await;
}

const RECOUNT: &str = "SELECT node_capacity_refresh(array_agg(id)) FROM nodes";

#[tokio::test]
async fn a_free_slot_that_somebody_holds() {
    let healthy = Healthy::new().await;
    let held: Uuid = healthy
        .kit
        .one(&format!(
            "SELECT slot_id FROM capacity_claims WHERE allocation_id = '{}' LIMIT 1",
            healthy.slice.uuid()
        ))
        .await;
    let old = (healthy.kit.now() - TimeDelta::minutes(2)).to_rfc3339();
    let set = |state: &str| {
        format!(
            "UPDATE node_resource_slots SET state = '{state}', updated_at = '{old}' WHERE id = '{held}'; {RECOUNT}"
        )
    };
    healthy.kit.tamper(&set("available")).await;
    is_found(&healthy, (Kind::ClaimOnFreeSlot, &SlotId::from(held).to_string()), &set("in_use")).await;
}

#[tokio::test]
async fn an_allocation_on_its_way_without_a_workflow() {
    let healthy = Healthy::new().await;
    let subject = healthy.launching.to_string();
    healthy.kit.run_ends(&subject).await;
    let mend =
        format!("UPDATE saga_runs SET state = 'running', finished_at = NULL WHERE subject = '{subject}'");
    is_found(&healthy, (Kind::WorkflowMissing, &subject), &mend).await;
}

#[tokio::test]
async fn a_moment_without_a_workflow_is_no_discrepancy() {
    let healthy = Healthy::new().await;
    let (id, now) = (healthy.launching.uuid(), healthy.kit.now().to_rfc3339());
    healthy.kit.run_ends(&healthy.launching.to_string()).await;
    healthy.kit.sql(&format!("UPDATE allocations SET state_changed_at = '{now}' WHERE id = '{id}'")).await;
    assert_eq!(check_once(&healthy.kit.capacity).await.unwrap().new, []);
}

#[tokio::test]
async fn a_holder_who_is_counted_wrongly() {
    let healthy = Healthy::new().await;
    let org: OrgId = healthy.kit.org;
    let more = |n: i64| {
        let org = org.uuid();
        format!("UPDATE capacity_holdings SET gpus = gpus + {n} WHERE org_id = '{org}' AND kind = '1_org'")
    };
    healthy.kit.tamper(&more(1)).await;
    is_found(&healthy, (Kind::HoldingsDiffer, &org.to_string()), &more(-1)).await;
}

#[tokio::test]
async fn a_node_that_is_counted_wrongly() {
    let healthy = Healthy::new().await;
    let node: NodeId = healthy.shared;
    healthy
        .kit
        .tamper(&format!("UPDATE node_capacity SET free = free + 1 WHERE node_id = '{}'", node.uuid()))
        .await;
    is_found(&healthy, (Kind::NodeCapacityDiffers, &format!("{node}/gpu H200")), RECOUNT).await;
}

#[tokio::test]
async fn a_task_that_nobody_waits_for() {
    let healthy = Healthy::new().await;
    let old = (healthy.kit.now() - TimeDelta::minutes(2)).to_rfc3339();
    let (task, run) = (healthy.kit.test.db.ambient().uuid(), healthy.kit.run("somebody").await);
    healthy
        .kit
        .sql(&format!(
            "INSERT INTO node_tasks (id, node_id, task_type, payload, signature, signer_version, correlation_id,
                 issued_at, expires_at, waiting_kind, waiting_key, created_at, updated_at)
             VALUES ('{task}', '{}', 'host.reboot', 'x', 'x', 1, '{task}', '{old}', '2040-01-01', 'saga',
                 'run_{}/account/run/1', '{old}', '{old}')",
            healthy.shared.uuid(),
            run.simple()
        ))
        .await;
    assert_eq!(check_once(&healthy.kit.capacity).await.unwrap().new, [], "its workflow is live");
    healthy
        .kit
        .sql(&format!("UPDATE saga_runs SET state = 'succeeded', finished_at = '{old}' WHERE id = '{run}'"))
        .await;
    let mend = format!("UPDATE node_tasks SET state = 'cancelled' WHERE id = '{task}'");
    is_found(&healthy, (Kind::TaskUnawaited, &format!("task_{}", task.simple())), &mend).await;
}

#[tokio::test]
async fn a_user_on_a_node_whom_no_allocation_explains() {
    let healthy = Healthy::new().await;
    let node = healthy.shared;
    let machine = healthy.slice.to_string();
    healthy.kit.reports(node, &["stranger"], std::slice::from_ref(&machine)).await;
    let mend = format!(
        "UPDATE node_contacts SET inventory = '{{\"users\": [], \"machines\": [\"{machine}\"]}}' WHERE node_id = '{}'",
        node.uuid()
    );
    is_found(&healthy, (Kind::UnknownOnNode, &format!("{node}/user/stranger")), &mend).await;
}

#[tokio::test]
async fn an_active_allocation_that_its_node_does_not_know() {
    let healthy = Healthy::new().await;
    healthy.kit.reports(healthy.whole, &[], &[]).await;
    let mend = format!(
        "UPDATE node_contacts SET inventory = '{{\"users\": [\"{}\"]}}' WHERE node_id = '{}'",
        healthy.account,
        healthy.whole.uuid()
    );
    is_found(&healthy, (Kind::MissingOnNode, &healthy.machine.to_string()), &mend).await;
}

#[tokio::test]
async fn a_node_that_is_offline_or_silent_is_not_judged() {
    let healthy = Healthy::new().await;
    healthy.kit.reports(healthy.whole, &[], &[]).await;
    healthy
        .kit
        .sql(&format!("UPDATE nodes SET state = 'offline' WHERE id = '{}'", healthy.whole.uuid()))
        .await;
    assert_eq!(check_once(&healthy.kit.capacity).await.unwrap().new, []);
    healthy.kit.reports(healthy.shared, &["stranger"], &[]).await;
    healthy.kit.pass(TimeDelta::minutes(30));
    assert_eq!(check_once(&healthy.kit.capacity).await.unwrap().new, [], "what it said is too old");
}
