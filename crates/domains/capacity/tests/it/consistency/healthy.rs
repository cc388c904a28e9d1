//! A system in which all is well.

use capacity::{jobs::consistency::check_once, model::allocation::Allocation};
use chrono::TimeDelta;
use kernel::ids::{AllocationId, NodeId};
use node_proto::catalog::{CandidateSlot, SlotKind};
use testfleet::{candidate, topology_of};

use super::kit::Kit;

const WHOLE: &str = "h200-sxm-baremetal-8g";
const SLICE: &str = "h200-sxm-slice";

pub struct Healthy {
    pub kit: Kit,
    /// Whole, with an active allocation whose account is `account`.
    pub whole: NodeId,
    pub machine: AllocationId,
    pub account: String,
    /// With an active slice of two GPUs and one that is being launched.
    pub shared: NodeId,
    pub slice: AllocationId,
    pub launching: AllocationId,
}

impl Healthy {
    pub async fn new() -> Self {
        let kit = Kit::new().await;
        let whole = kit.node("gpu-1", 8).await;
        let Allocation { id: machine, username: account, .. } = kit.active(WHOLE, None).await;
        let shared = kit.node("gpu-2", 8).await;
        let slice = kit.active(SLICE, Some(2)).await.id;
        let launching = kit.requested(SLICE, Some(1)).await.id;
        // A node with slots of two kinds.
        let cpu = CandidateSlot { kind: SlotKind::Cpu, ..candidate(9) };
        kit.node_with("mixed-1", &topology_of((0..4).map(candidate).chain([cpu]).collect())).await;
        kit.pass(TimeDelta::minutes(5));
        kit.reports(whole, &[account.as_str()], &[]).await;
        kit.reports(shared, &[], &[slice.to_string()]).await;
        Self { kit, whole, machine, account, shared, slice, launching }
    }

    /// All rows that a repair could touch, as one number.
    pub async fn fingerprint(&self) -> String {
        let tables = [
            "allocations",
            "capacity_claims",
            "capacity_node_modes",
            "capacity_holdings",
            "node_resource_slots",
            "node_capacity",
            "nodes",
            "node_contacts",
            "saga_runs",
            "saga_steps",
            "node_tasks",
            "allocation_events",
            "outbox_events",
            "audit_logs",
        ];
        let sums: Vec<String> = tables
            .iter()
            .map(|table| {
                format!(
                    "(SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM {table} t)"
                )
            })
            .collect();
        self.kit.one(&format!("SELECT {}", sums.join(" || "))).await
    }
}

#[tokio::test]
async fn nothing_is_found_where_all_is_well() {
    let healthy = Healthy::new().await;
    let before = healthy.fingerprint().await;
    let checked = check_once(&healthy.kit.capacity).await.unwrap();
    assert_eq!(checked.new, []);
    assert_eq!(checked.resolved, 0);
    assert!(checked.open.iter().all(|(_, open)| *open == 0), "{checked:?}");
    assert_eq!(checked.next_node, None);
    assert_eq!(healthy.fingerprint().await, before);
}

#[tokio::test]
async fn nothing_is_found_in_an_empty_system() {
    let kit = Kit::new().await;
    assert_eq!(check_once(&kit.capacity).await.unwrap().new, []);
}
