//! A system in which all is well.

use capacity::jobs::consistency::check_once;
use chrono::TimeDelta;
use kernel::ids::{AllocationId, NodeId};

use super::kit::Kit;

pub struct Healthy {
    pub kit: Kit,
    /// Whole, with an active allocation of `anna`.
    pub whole: NodeId,
    pub machine: AllocationId,
    /// With an active slice of two GPUs and one that is being launched.
    pub shared: NodeId,
    pub slice: AllocationId,
    pub launching: AllocationId,
}

impl Healthy {
    pub async fn new() -> Self {
        let kit = Kit::new().await;
        let (whole, shared) = (kit.node("gpu-1", 8).await, kit.node("gpu-2", 8).await);
        let all = kit.free(whole).await;
        let machine = kit.active(whole, "baremetal", &all, "anna").await;
        let free = kit.free(shared).await;
        let slice = kit.active(shared, "gpu_slice", &free[..2], "berta").await;
        let launching = kit.requested(shared, "gpu_slice", &free[2..3], "clara").await;
        // A node with slots of two kinds.
        let mixed = kit.node("mixed-1", 4).await.uuid();
        kit.sql(&format!(
            "INSERT INTO node_resource_slots (id, node_id, slot_index, kind, state, health, created_at, updated_at)
             VALUES (gen_random_uuid(), '{mixed}', 9, 'cpu', 'available', 'healthy', now(), now())"
        ))
        .await;
        kit.pass(TimeDelta::minutes(5));
        kit.reports(whole, &["anna"], &[]).await;
        kit.reports(shared, &[], &[slice.to_string()]).await;
        Self { kit, whole, machine, shared, slice, launching }
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
