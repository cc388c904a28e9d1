//! Machines whose agent is older than the node contract with which nodes connect to gateways.

use serde_json::{Value, json};
use testkit::{World, eventually};
use tokio_tungstenite::tungstenite::http::header;

use super::{
    client::{Said, Terminal, connect_with, request, token},
    slice,
};
use crate::ssh::refusals as ssh;

/// As `gpuaas nodes logs --follow` does. Gives what is said first.
async fn log_follow(world: &World, node: &str) -> Value {
    let path = format!("/api/v1/platform/nodes/{node}/log-token");
    let made = world.admin.post(&path, json!({ "source": "agent" })).await.expect(201);
    let mut request = request(&world.server, &format!("/ws/node-logs/{node}"));
    let bearer = format!("Bearer {}", made["token"].as_str().unwrap());
    request.headers_mut().insert(header::AUTHORIZATION, bearer.parse().unwrap());
    request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, "gpuaas.node-logs.v1".parse().unwrap());
    ssh::control(&mut connect_with(&world.server, request).await.expect("a WebSocket")).await
}

fn refused(said: &Value) {
    assert_eq!((&said["code"], &said["retryable"]), (&json!("node_too_old"), &json!(false)), "{said}");
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("1.1") && message.contains("Update the agent"), "{message}");
}

/// `node_contract_1_1` has an agent of 1.1, and a test that this is what a report of it leaves.
#[tokio::test]
async fn whoever_wants_into_a_machine_with_an_old_agent_is_told_so_and_gets_in_when_it_is_updated() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let report_1_1 = "CREATE FUNCTION report_1_1() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            NEW.contract := '1.1';
            RETURN NEW; END $$;
        CREATE TRIGGER report_1_1 BEFORE INSERT OR UPDATE ON node_contacts FOR EACH ROW EXECUTE FUNCTION report_1_1();
        UPDATE node_contacts SET contract = '1.1';";
    world.db.sql(report_1_1).await;
    // Its first report may be on its way.
    eventually("a report of 1.1", || async {
        (world.db.one::<i64>("SELECT count(*) FROM node_contacts WHERE contract = '1.1'").await == 1)
            .then_some(())
    })
    .await;

    let (text, session) = token(&ann, &id, json!({})).await;
    match Terminal::attach(&world.server, &id, &text, session, 0).await {
        Err(Said::Control(said)) => refused(&said),
        other => panic!("{:?}", other.err()),
    }
    let connection = ssh::token(&ann, &id).await;
    refused(&ssh::control(&mut ssh::connect(&world, &id, &connection).await).await);
    refused(&log_follow(&world, &nodes.ids[0]).await);

    let update = "DROP TRIGGER report_1_1 ON node_contacts; UPDATE node_contacts SET contract = '1.2'";
    world.db.sql(update).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    assert_eq!(terminal.run("echo hello").await, "hello");
}
