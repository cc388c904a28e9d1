use identity::model::invitation::InvitationLifecycle;
use lifecycle::Lifecycle as _;

use crate::world::World;

#[tokio::test]
async fn the_invitation_lifecycle_in_the_code_equals_the_one_in_the_database() {
    let world = World::new().await;
    let mut read = world.read_system().await;
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT from_state, to_state FROM lifecycle_transitions WHERE lifecycle = $1 ORDER BY 1, 2",
    )
    .bind(InvitationLifecycle::NAME)
    .fetch_all(read.conn())
    .await
    .unwrap();
    let rows: Vec<(&str, &str)> = rows.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    assert_eq!(rows, InvitationLifecycle::rows());
}
