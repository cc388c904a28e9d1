//! Each way in which books can be wrong is found when it is made, named, and gone when it is.

use async_trait::async_trait;
use billing::{
    api::RunningAllocations,
    jobs::reconcile::{Progress, Reconciled},
    model::finding::BillingFindingKind as Kind,
    service::reconcile::reconcile,
};
use kernel::{
    Failure,
    ids::{AllocationId, MeterId, OrgId},
};
use pg::Connection;
use uuid::Uuid;

use super::kit::Kit;

struct Run(Vec<(AllocationId, OrgId)>);

#[async_trait]
impl RunningAllocations for Run {
    async fn page(
        &self,
        _: &mut Connection,
        after: AllocationId,
        _: i64,
    ) -> Result<Vec<(AllocationId, OrgId)>, Failure> {
        Ok(self.0.iter().copied().filter(|(id, _)| *id > after).collect())
    }

    async fn running(&self, _: &mut Connection, ids: &[AllocationId]) -> Result<Vec<AllocationId>, Failure> {
        Ok(self.0.iter().map(|(id, _)| *id).filter(|id| ids.contains(id)).collect())
    }
}

async fn findings_read(kit: &Kit) -> Reconciled {
    reconcile(&kit.billing, None, &mut Progress::default()).await.unwrap()
}

async fn found_only(kit: &Kit, kind: Kind, subject: &str) {
    let done = findings_read(kit).await;
    assert_eq!(done.new, [(kind, subject.to_owned())]);
    let listed = kit.get(kit.admin, "/api/v1/platform/billing/findings?state=open").await.ok();
    assert_eq!(listed["items"][0]["subject"], subject);
    assert_eq!(listed["items"][0]["kind"], kind.name());
    assert_eq!(findings_read(kit).await.new, [], "it is told once");
}

async fn all_gone(kit: &Kit) {
    let done = findings_read(kit).await;
    assert_eq!((done.new.len(), done.open.iter().map(|(_, count)| count).sum::<i64>()), (0, 0), "{done:?}");
    let listed = kit.get(kit.admin, "/api/v1/platform/billing/findings?state=open").await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 0);
    let listed = kit.get(kit.admin, "/api/v1/platform/billing/findings?state=resolved").await.ok();
    assert!(listed["items"][0]["resolved_at"].is_string());
}

/// Books in which something ran, something ended, and something was given.
async fn books() -> (Kit, AllocationId) {
    let kit = Kit::new().await;
    kit.fund(100_000).await;
    let allocation = kit.launch(0, "sku", 1000, 2).await.unwrap();
    let ended = kit.launch(1, "sku", 500, 1).await.unwrap();
    kit.pass(1800);
    kit.tick().await;
    kit.pause(ended, 300).await;
    kit.close(ended).await;
    kit.adjust(serde_json::json!({ "kind": "promo", "amount_minor": 100 })).await.ok();
    kit.pass(60);
    kit.tick().await;
    assert_eq!(findings_read(&kit).await.new, [], "good books");
    (kit, allocation)
}

async fn meter(kit: &Kit, allocation: AllocationId) -> String {
    let id: Uuid =
        kit.one(&format!("SELECT id FROM meters WHERE allocation_id = '{}'", allocation.uuid())).await;
    MeterId::from(id).to_string()
}

#[tokio::test]
async fn a_meter_that_nobody_accrues_is_found_and_gone_when_it_is() {
    let (kit, allocation) = books().await;
    kit.pass(3600);
    found_only(&kit, Kind::MissingOpenUsage, &meter(&kit, allocation).await).await;
    kit.tick().await;
    all_gone(&kit).await;
}

#[tokio::test]
async fn an_end_that_is_not_posted_is_found_and_gone_when_it_is() {
    let (kit, allocation) = books().await;
    kit.close(allocation).await;
    kit.pass(3600);
    found_only(&kit, Kind::UnbilledClosedUsage, &meter(&kit, allocation).await).await;
    kit.tick().await;
    all_gone(&kit).await;
}

#[tokio::test]
async fn a_launch_that_never_ends_is_found_and_gone_when_it_fails() {
    let (kit, allocation) = books().await;
    kit.close(allocation).await;
    let stuck = kit.hold_create(0, "sku", 10, 1).await.unwrap();
    kit.pass(25 * 3600);
    kit.tick().await;
    found_only(&kit, Kind::HeldMismatch, &meter(&kit, stuck).await).await;
    kit.fail(stuck).await;
    all_gone(&kit).await;
}

#[tokio::test]
async fn held_money_without_a_meter_is_found() {
    let (kit, allocation) = books().await;
    let change = |by: i64| {
        format!(
            "UPDATE meters SET hold_remaining = hold_remaining + {by} WHERE allocation_id = '{}'",
            allocation.uuid()
        )
    };
    kit.tamper(&change(-1)).await;
    found_only(&kit, Kind::HeldMismatch, &kit.org.to_string()).await;
    kit.tamper(&change(1)).await;
    all_gone(&kit).await;
}

#[tokio::test]
async fn a_posting_that_is_not_the_sum_of_its_usage_is_found() {
    let (kit, _) = books().await;
    let seq: i64 = kit.one("SELECT min(seq) FROM usage_records WHERE amount_minor > 0").await;
    let one = format!(
        "FROM (SELECT min(meter_id::text)::uuid AS id FROM usage_records WHERE seq = {seq}) AS m WHERE seq = {seq} AND meter_id = m.id"
    );
    kit.tamper(&format!("UPDATE usage_records SET amount_minor = amount_minor + 1 {one}")).await;
    found_only(&kit, Kind::LedgerUsageMismatch, &format!("{}#{seq}", kit.org)).await;
    kit.tamper(&format!("UPDATE usage_records SET amount_minor = amount_minor - 1 {one}")).await;
    all_gone(&kit).await;
}

#[tokio::test]
async fn a_changed_line_posting_or_head_breaks_the_chain_where_it_is() {
    let (kit, _) = books().await;
    for (change, back, at) in [
        (
            "UPDATE ledger_lines SET project_id = '00000000-0000-0000-0000-000000000001' WHERE seq = 1 AND line = 1",
            "UPDATE ledger_lines SET project_id = NULL WHERE seq = 1 AND line = 1",
            "#1",
        ),
        (
            "UPDATE ledger_postings SET reason = reason || ' ' WHERE seq = 3",
            "UPDATE ledger_postings SET reason = left(reason, -1) WHERE seq = 3",
            "#3",
        ),
        (
            "UPDATE ledger_chains SET hash = sha256(hash), seq = seq",
            "UPDATE ledger_chains c SET hash = p.hash FROM ledger_postings p WHERE p.seq = c.seq",
            "",
        ),
    ] {
        kit.tamper(change).await;
        found_only(&kit, Kind::ChainBroken, &format!("{}{at}", kit.org)).await;
        kit.tamper(back).await;
        all_gone(&kit).await;
    }
    kit.tamper("DELETE FROM ledger_postings WHERE seq = 2").await;
    let done = findings_read(&kit).await;
    assert!(done.new.contains(&(Kind::ChainBroken, format!("{}#3", kit.org))), "{done:?}");
}

#[tokio::test]
async fn what_runs_without_a_meter_and_a_meter_of_what_does_not_run_are_found() {
    let (kit, allocation) = books().await;
    let stranger: AllocationId = kit.test.db.ambient().id();
    let turn = async |run: Run| reconcile(&kit.billing, Some(&run), &mut Progress::default()).await.unwrap();
    assert_eq!(turn(Run(vec![(allocation, kit.org)])).await.new, []);
    let done = turn(Run(vec![(stranger, kit.org)])).await;
    let meter = meter(&kit, allocation).await;
    let expected = [(Kind::MissingOpenUsage, stranger.to_string()), (Kind::OrphanOpenUsage, meter)];
    assert_eq!(done.new, expected);
    let done = turn(Run(vec![(allocation, kit.org)])).await;
    assert_eq!((done.new.len(), done.resolved), (0, 2));
    let listed = kit.get(kit.owner, "/api/v1/platform/billing/findings").await;
    assert_eq!(listed.code(), "admin_required");
}
