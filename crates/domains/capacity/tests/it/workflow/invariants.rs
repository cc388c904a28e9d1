//! What must hold whenever no transaction is open: what always must, and what only this kit can count.

use testkit::invariants;

use super::kit::Kit;

const NEVER: &[(&str, &str)] = &[
    (
        "a meter was opened more than once, or for what was never active",
        "SELECT count(*) FROM allocations a WHERE (a.meter_opened_at IS NOT NULL)::int <>
             (SELECT count(*) FROM test_meters m WHERE m.allocation = a.id AND m.what = 'open')",
    ),
    (
        "a meter runs on after the end, or was closed more than once",
        "SELECT count(*) FROM allocations a WHERE (a.meter_closed_at IS NOT NULL)::int <>
             (SELECT count(*) FROM test_meters m WHERE m.allocation = a.id AND m.what = 'close')",
    ),
    (
        "a tenant reads what a node said",
        "SELECT count(*) FROM allocations a JOIN allocation_events e ON e.allocation_id = a.id
         WHERE a.state_reason || e.name || e.reason LIKE '%host-%'",
    ),
];

/// Says what does not hold.
pub async fn broken(kit: &Kit) -> Result<(), String> {
    invariants::broken(&kit.test).await?;
    invariants::broken_of(&kit.test, NEVER).await
}

pub async fn hold(kit: &Kit) {
    broken(kit).await.unwrap();
}
