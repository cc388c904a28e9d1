use identity::model::{invitation::InvitationLifecycle, sensitive_change::SensitiveChangeLifecycle};
use lifecycle::Lifecycle;

use super::world::World;

#[tokio::test]
async fn the_lifecycles_in_the_code_equal_those_in_the_database() {
    let world = World::new().await;
    equal::<InvitationLifecycle>(&world).await;
    equal::<SensitiveChangeLifecycle>(&world).await;
}

async fn equal<L: Lifecycle>(world: &World) {
    let mut read = world.read_system().await;
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT from_state, to_state FROM lifecycle_transitions WHERE lifecycle = $1 ORDER BY 1, 2",
    )
    .bind(L::NAME)
    .fetch_all(read.conn())
    .await
    .unwrap();
    let rows: Vec<(&str, &str)> = rows.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    assert_eq!(rows, L::rows());
}
