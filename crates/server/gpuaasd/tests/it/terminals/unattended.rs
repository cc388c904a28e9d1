//! What becomes of a session that nobody is attached to.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{World, eventually_within};

use super::{client::Terminal, slice};

/// A few reports of the node, and a few turns of the upkeep.
const NOTED: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_session_that_its_node_does_not_have_any_more_is_not_listed_as_open() {
    let world = World::start_simulated().await;
    let mut nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.run("true").await;
    terminal.control(json!({ "type": "detach" })).await;
    // Reports of the first minute do not count, as they may be from before.
    world
        .db
        .sql("UPDATE terminal_sessions SET last_attached_at = last_attached_at - interval '1 minute'")
        .await;
    let ended = async || -> Option<Value> {
        let path = ann.path(&format!("/{id}/terminal-sessions"));
        let list = ann.api().get(&path).await.expect(200);
        let one = list["items"].as_array().unwrap().iter().find(|one| one["id"] == terminal.session).cloned();
        one.filter(|one| !one["ended_at"].is_null())
    };
    let reports = "SELECT count(*) FROM node_contacts c, terminal_sessions s
         WHERE c.last_seen_at > s.last_attached_at + interval '65 seconds'
           AND jsonb_array_length(c.inventory -> 'terminal_sessions') = 1";
    eventually_within(NOTED, "the node reports it", || async {
        (world.db.one::<i64>(reports).await == 1).then_some(())
    })
    .await;
    assert_eq!(ended().await, None, "it runs");

    // An agent that begins anew has no sessions.
    nodes.kill();
    nodes.start();
    let end = eventually_within(NOTED, "the end is noted", &ended).await;
    assert_eq!(end["end_reason"], "lost");
}
