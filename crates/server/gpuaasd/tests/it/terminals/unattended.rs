//! What becomes of a session that nobody is attached to.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Tenant, World, eventually_within};

use super::{client::Terminal, slice};

/// A few reports of the node, and a few turns of the upkeep.
const NOTED: Duration = Duration::from_secs(150);

async fn left(world: &World, ann: &Tenant, id: &str, types: &str) -> String {
    let mut terminal = Terminal::open(&world.server, ann, id).await;
    terminal.run("echo re''ady").await;
    terminal.until("ready\r\n").await;
    terminal.type_in(types).await;
    terminal.control(json!({ "type": "detach" })).await;
    terminal.session
}

#[tokio::test]
async fn a_session_that_ends_while_nobody_is_attached_is_in_the_history_with_its_end() {
    let world = World::start_simulated().await;
    let mut nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let exits = left(&world, &ann, &id, "sleep 1; exit 3\n").await;
    let stays = left(&world, &ann, &id, "sleep 1000\n").await;
    // Reports of the first minute do not count, as they may be from before.
    world
        .db
        .sql("UPDATE terminal_sessions SET last_attached_at = last_attached_at - interval '1 minute'")
        .await;
    let ended = async |session: &str| -> Option<Value> {
        let path = ann.path(&format!("/{id}/terminal-sessions"));
        let list = ann.api().get(&path).await.expect(200);
        let one = list["items"].as_array().unwrap().iter().find(|one| one["id"] == session).cloned();
        one.filter(|one| !one["ended_at"].is_null())
    };
    let end = eventually_within(NOTED, "the end is noted", || ended(&exits)).await;
    assert_eq!((&end["end_reason"], &end["exit_status"]), (&json!("exited"), &json!(3)));
    assert_eq!(ended(&stays).await, None, "it runs");

    // An agent that begins anew has no sessions.
    nodes.kill();
    nodes.start();
    let end = eventually_within(NOTED, "the end is noted", || ended(&stays)).await;
    assert_eq!(end["end_reason"], "lost");
}
