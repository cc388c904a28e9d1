use identity::model::{invitation::InvitationLifecycle, sensitive_change::SensitiveChangeLifecycle};

use super::world::World;

#[tokio::test]
async fn the_lifecycles_in_the_code_equal_those_in_the_database() {
    let world = World::new().await;
    world.test.assert_lifecycle::<InvitationLifecycle>().await;
    world.test.assert_lifecycle::<SensitiveChangeLifecycle>().await;
}
