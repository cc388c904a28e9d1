//! SSH through the tunnel, from the command line of a person to the SSH server of a machine in namespaces, with everything in
//! between real.

mod bytes_flow;
mod draining;
mod laptop;
mod limits;
pub mod programs;
pub mod refusals;
mod terminals_on_hosts;

use serde_json::json;
use testkit::{Tenant, World};

use crate::allocations::real_host::{Host, Key, SKU, colleagues, sell};

/// A machine that somebody has launched.
struct Launched {
    world: World,
    host: Host,
    /// Whose machine it is, and a colleague.
    bo: Tenant,
    cy: Tenant,
    key: Key,
    id: String,
}

impl Launched {
    async fn new() -> Self {
        Self::with_host(Host::boot()).await
    }

    async fn with_host(mut host: Host) -> Self {
        let world = World::start().await;
        world.policy("fleet.heartbeat_seconds", 1).await;
        sell(&world, &mut host).await;
        let (key, other) = (host.key("his"), host.key("hers"));
        let [bo, cy] = colleagues(&world, [&key, &other]).await;
        let id = bo.active(json!({ "sku": SKU, "name": "train-1" })).await;
        Self { world, host, bo, cy, key, id }
    }
}
