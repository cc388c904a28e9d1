//! Money end to end: what launches need, what ends without it, and what sick hardware gives back.

mod credits;
mod depletion;
mod funds;
mod second_person;

use serde_json::{Value, json};
use testkit::{Tenant, World};

const MACHINE: &str = "h200-sxm-baremetal-8g";
const SLICE: &str = "h200-sxm-slice";
/// Of a whole machine, by the hour.
const MACHINE_RATE: i64 = 8 * 400;

fn slice() -> Value {
    json!({ "sku": SLICE, "gpus": 1 })
}

fn machine() -> Value {
    json!({ "sku": MACHINE })
}

async fn balance(tenant: &Tenant) -> Value {
    let path = format!("/api/v1/orgs/{}/billing/balance", tenant.person.org_id);
    tenant.api().get(&path).await.expect(200)
}

fn uuid(id: &str) -> &str {
    id.trim_start_matches("alloc_")
}

/// The state of the meter of an allocation.
async fn meter(world: &World, id: &str) -> String {
    world.db.one(&format!("SELECT state FROM meters WHERE allocation_id = '{}'::uuid", uuid(id))).await
}
