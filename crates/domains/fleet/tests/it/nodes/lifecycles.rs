use fleet::model::{
    finding::FindingLifecycle,
    node::{NodeEvent, NodeLifecycle, NodeState},
    onboarding::OnboardingLifecycle,
    slot::SlotLifecycle,
    task::TaskLifecycle,
};
use kernel::Code;
use lifecycle::{Lifecycle, Named as _};

use super::world::{World, code};

#[tokio::test]
async fn every_lifecycle_in_the_code_equals_the_one_in_the_database() {
    let world = World::new().await;
    world.test.assert_lifecycle::<NodeLifecycle>().await;
    world.test.assert_lifecycle::<OnboardingLifecycle>().await;
    world.test.assert_lifecycle::<SlotLifecycle>().await;
    world.test.assert_lifecycle::<TaskLifecycle>().await;
    world.test.assert_lifecycle::<FindingLifecycle>().await;
}

#[tokio::test]
async fn every_step_of_a_node_that_is_not_in_the_table_is_refused_by_the_code() {
    let world = World::new().await;
    let (node, _) = world.node("gpu-01").await;
    for from in NodeLifecycle::STATES {
        for event in NodeLifecycle::EVENTS {
            world.tamper(&format!("UPDATE nodes SET state = '{}'", from.name())).await;
            let result = world.transition(node.id, *event).await;
            match NodeLifecycle::next(*from, *event) {
                Some(to) => assert_eq!(result.unwrap().state, to, "{from:?} on {event:?}"),
                None => {
                    assert_eq!(code(result), Some(Code::InvalidTransition), "{from:?} on {event:?}");
                    assert_eq!(world.state(node.id).await, from.name());
                }
            }
        }
    }
    let steps = i64::try_from(NodeLifecycle::TRANSITIONS.len()).unwrap();
    assert_eq!(
        world.count("SELECT count(*) FROM node_history").await,
        steps,
        "each allowed step is remembered"
    );
    assert_eq!(world.count("SELECT count(*) FROM outbox_events WHERE stream = 'NODES' AND event_type LIKE 'nodes.%' AND payload ? 'region'").await, steps, "and told");
}

async fn assert_refused_outside<L: Lifecycle>(world: &World, table: &str) {
    let mut system = world.test.conn(pg::Roles::System).await;
    sqlx::query("SET default_transaction_read_only = off").execute(&mut system).await.unwrap();
    let mut write = async |to: &str| {
        let sql = format!("UPDATE {table} SET state = '{to}'");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut system).await
    };
    for from in L::STATES {
        for to in L::STATES.iter().filter(|to| *to != from) {
            world.tamper(&format!("UPDATE {table} SET state = '{}'", from.name())).await;
            let written = write(to.name()).await;
            let allowed = L::TRANSITIONS.iter().any(|t| t.from == *from && t.to == *to);
            let step = format!("{table}: {} to {}", from.name(), to.name());
            assert_eq!(written.is_ok(), allowed, "{step}: {written:?}");
        }
    }
    assert!(write("on_fire").await.is_err(), "{table}: a state that is not in the table");
}

#[tokio::test]
async fn every_step_that_is_not_in_its_table_is_refused_by_the_database() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    world
        .sql(&format!(
            "INSERT INTO health_findings (id, node_id, code, subject, message, action, first_seen_at, last_seen_at,
                 created_at, updated_at)
             VALUES (gen_random_uuid(), '{}', 'xid.79', 'node', '', 'observe', now(), now(), now(), now());
             DELETE FROM node_tasks WHERE id <> (SELECT min(id::text)::uuid FROM node_tasks)",
            node.id.uuid()
        ))
        .await;
    assert_refused_outside::<NodeLifecycle>(&world, "nodes").await;
    assert_refused_outside::<OnboardingLifecycle>(&world, "node_onboardings").await;
    assert_refused_outside::<SlotLifecycle>(&world, "node_resource_slots").await;
    assert_refused_outside::<TaskLifecycle>(&world, "node_tasks").await;
    assert_refused_outside::<FindingLifecycle>(&world, "health_findings").await;
}

#[tokio::test]
async fn of_two_who_move_a_node_at_once_one_is_refused() {
    let world = World::new().await;
    let node = world.active("gpu-01", 1).await;
    let (first, second) = tokio::join!(
        world.transition(node.id, NodeEvent::LoseContact),
        world.transition(node.id, NodeEvent::LoseContact)
    );
    let outcomes = [code(first), code(second)];
    assert!(outcomes.contains(&None) && outcomes.contains(&Some(Code::InvalidTransition)), "{outcomes:?}");
    assert_eq!(world.state(node.id).await, NodeState::Offline.name());
}
