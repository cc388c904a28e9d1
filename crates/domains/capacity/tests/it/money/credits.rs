//! Sick hardware is not paid for, to the second, whatever comes first.

use chrono::{DateTime, Utc};
use fleet::service::findings;
use kernel::{
    ids::{AllocationId, FindingId, NodeId},
    text::Reason,
};
use node_proto::contract::Finding;
use serde_json::json;
use uuid::Uuid;

use super::{
    bank::{self, Bank, RATE},
    kit::SLICE,
};

pub async fn node(bank: &Bank, id: AllocationId) -> NodeId {
    let node: Uuid = bank.one(&format!("SELECT node_id FROM allocations WHERE id = '{}'", id.uuid())).await;
    node.into()
}

/// The node says that a GPU, or all of it, is gone since then. It had not reported since.
pub async fn found(bank: &Bank, node: NodeId, subject: &str, code: &str, since: DateTime<Utc>) -> FindingId {
    finding_report(bank, node, subject, code, since, Some(since)).await
}

/// The same from a node that reported at `heard_before` for the last time.
pub async fn finding_report(
    bank: &Bank,
    node: NodeId,
    subject: &str,
    code: &str,
    since: DateTime<Utc>,
    heard_before: Option<DateTime<Utc>>,
) -> FindingId {
    let finding = Finding {
        code: code.to_owned(),
        subject: subject.to_owned(),
        message: "host-secret: GPU has fallen off the bus".to_owned(),
        observed_at: since,
        evidence: json!({ "line": "host-secret 0000:01:00.0" }),
    };
    findings::report(&bank.fleet, node, &[finding], heard_before, &bank.origin()).await.unwrap();
    let sql = format!(
        "SELECT id FROM health_findings WHERE node_id = '{}' AND code = '{code}' AND subject = '{subject}'
         ORDER BY id DESC LIMIT 1",
        node.uuid()
    );
    bank.one::<Uuid>(&sql).await.into()
}

pub async fn resolved(bank: &Bank, id: FindingId) {
    let mut tx = bank.as_operator().await;
    findings::finding_resolve(&mut tx, id, &Reason::parse("replaced").unwrap(), None).await.unwrap();
    tx.commit(None).await.unwrap();
}

pub fn now(bank: &Bank) -> DateTime<Utc> {
    bank.test.db.ambient().now()
}

/// What so many seconds cost.
pub fn cost(seconds: i64) -> i64 {
    RATE * seconds / 3600
}

/// Seconds of the meter that were billed.
pub async fn billed_between(bank: &Bank, id: AllocationId) -> i64 {
    bank.one(&format!(
        "SELECT extract(epoch FROM accrued_until - opened_at)::bigint FROM meters WHERE allocation_id = '{}'",
        id.uuid()
    ))
    .await
}

pub const GPU: &str = "0000:01:00.0";

#[tokio::test]
async fn a_faulty_gpu_is_paid_for_until_its_fault_and_again_from_its_repair() {
    let bank = Bank::with(100 * RATE).await;
    let (id, well) = (bank.active(SLICE).await, bank.active(SLICE).await);
    bank.later(1_000);
    let since = now(&bank);
    // Known a while later, when more was charged.
    bank.later(777);
    bank.accrue().await;
    let before = bank.charged(id).await;
    let finding = found(&bank, node(&bank, id).await, GPU, "xid.79", since).await;
    bank.deliver().await;
    assert_eq!((bank.meter(id).await.as_str(), bank.meter(well).await.as_str()), ("paused", "open"));
    let at_fault = billed_between(&bank, id).await;
    assert!((1_000..=1_002).contains(&at_fault), "{at_fault}");
    assert_eq!(bank.charged(id).await, cost(at_fault));
    assert!(before > cost(at_fault), "something went back");
    let told: (i64, String) = {
        let payload: serde_json::Value =
            bank.one("SELECT payload FROM outbox_events WHERE event_type = 'billing.credit_posted'").await;
        (payload["credited_minor"].as_i64().unwrap(), payload.to_string())
    };
    assert_eq!(told.0, before - cost(at_fault));

    bank.later(5_000);
    bank.accrue().await;
    assert_eq!(bank.charged(id).await, cost(at_fault), "nobody pays while it lasts");
    resolved(&bank, finding).await;
    bank.deliver().await;
    assert_eq!(bank.meter(id).await, "open");
    let resumed: DateTime<Utc> =
        bank.one(&format!("SELECT running_since FROM meters WHERE allocation_id = '{}'", id.uuid())).await;
    bank.later(600);
    bank.accrue().await;
    let after: i64 = {
        let until: DateTime<Utc> = bank
            .one(&format!("SELECT accrued_until FROM meters WHERE allocation_id = '{}'", id.uuid()))
            .await;
        (until - resumed).num_seconds()
    };
    assert!((600..=603).contains(&after), "{after}");
    assert_eq!(bank.charged(id).await, cost(at_fault + after), "exact to the second");

    let kept: String = bank.one("SELECT string_agg(reason || evidence::text, ' ') FROM meter_pauses").await;
    let posted: String = bank.one("SELECT string_agg(reason, ' ') FROM ledger_postings").await;
    for text in [kept, posted, told.1] {
        let node = node(&bank, id).await;
        for secret in ["host-", "0000:", "node_", &node.uuid().to_string(), &node.to_string()] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn a_fault_that_was_over_before_anybody_heard_of_it_is_given_back_and_no_more() {
    let bank = Bank::with(100 * RATE).await;
    let id = bank.active(SLICE).await;
    bank.later(100);
    let finding = found(&bank, node(&bank, id).await, "node", "xid.79", now(&bank)).await;
    bank.later(50);
    bank.accrue().await;
    resolved(&bank, finding).await;
    bank.deliver().await;
    assert_eq!(bank.meter(id).await, "open");
    bank.later(100);
    bank.accrue().await;
    let all = billed_between(&bank, id).await;
    let charged = bank.charged(id).await;
    assert!(charged <= cost(all - 50) && charged >= cost(all - 53), "{charged} for {all} seconds");
    let open: i64 = bank.one("SELECT count(*) FROM meter_pauses WHERE resumed_at IS NULL").await;
    assert_eq!(open, 0);
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn a_second_fault_keeps_the_meter_still_when_the_first_is_over() {
    let bank = Bank::with(100 * RATE).await;
    let id = bank.active(SLICE).await;
    let host = node(&bank, id).await;
    bank.later(100);
    let first = found(&bank, host, GPU, "xid.79", now(&bank)).await;
    let second = found(&bank, host, "node", "xid.79", now(&bank)).await;
    bank.deliver().await;
    let charged = bank.charged(id).await;
    bank.later(100);
    resolved(&bank, first).await;
    bank.deliver().await;
    assert_eq!(bank.meter(id).await, "paused");
    bank.later(100);
    bank.accrue().await;
    assert_eq!(bank.charged(id).await, charged);
    resolved(&bank, second).await;
    bank.deliver().await;
    assert_eq!(bank.meter(id).await, "open");
    bank::hold(&bank.test).await;
}

#[tokio::test]
async fn a_machine_that_becomes_active_on_sick_hardware_is_not_paid_for() {
    let bank = Bank::with(100 * RATE).await;
    let id = bank.launch(SLICE).await;
    found(&bank, node(&bank, id).await, GPU, "xid.79", now(&bank)).await;
    bank.deliver().await;
    assert_eq!(bank.drive(&id.to_string()).await, "succeeded");
    bank.later(30);
    bank.deliver().await;
    assert_eq!(bank.meter(id).await, "paused");
    bank.later(1_000);
    bank.accrue().await;
    assert_eq!(bank.charged(id).await, 0);
    bank::hold(&bank.test).await;
}
