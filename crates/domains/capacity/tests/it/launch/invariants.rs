//! What must hold at any time: what always must, and what is true as long as nobody works the runs.

use testkit::invariants;

use super::world::World;

const NEVER: &[(&str, &str)] = &[(
    "an allocation was made without its event",
    "SELECT abs((SELECT count(*) FROM allocations) -
         (SELECT count(*) FROM outbox_events WHERE event_type = 'provisioning.requested'))",
)];

pub async fn hold(world: &World) {
    invariants::hold(&world.test).await;
    invariants::broken_of(&world.test, NEVER).await.unwrap();
}
