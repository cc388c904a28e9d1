//! What a session survives, and what it does not.

use std::time::Duration;

use serde_json::json;
use testkit::{ServerOptions, World, eventually, eventually_within};

use super::{
    Team,
    client::{LATER, Said, Terminal, token},
    processes::sleeping_count,
    recorded::sealed,
    slice,
};

/// A number a line, as a terminal prints it.
pub fn counted(to: u32) -> Vec<u8> {
    (1..=to).flat_map(|n| format!("{n}\r\n").into_bytes()).collect()
}

/// Lines of a stream of 100 MB: a number and a thousand zeros.
const LINES: usize = 100_000;
/// So much of it comes before what carries it is changed.
const CARRIED: u64 = 25_000_000;

#[tokio::test]
async fn a_gateway_is_killed_under_a_long_output_and_no_byte_is_lost_or_doubled() {
    let mut world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let gateway = || ServerOptions { roles: "terminal-gateway".to_owned(), ..ServerOptions::default() };
    let (mut second, third) = (world.replica_with(gateway()).await, world.replica_with(gateway()).await);
    let mut terminal = Terminal::open(&second, &ann, &id).await;
    terminal.run("PS1=; stty -echo").await;
    let print = format!("seq -f \"%06.0f:$(printf %01000d 0)\" 1 {LINES}");
    terminal.type_in(&format!("echo be''gin; {print}; echo en''d\n")).await;
    terminal.until("begin\r\n").await;
    let mut all = Vec::new();
    for turn in 0..3 {
        let goal = terminal.received + CARRIED;
        while terminal.received < goal {
            assert_eq!(terminal.next().await, Said::Output);
        }
        all.append(&mut terminal.output);
        terminal = match turn {
            // Another gateway goes on with what the client of the killed one has.
            0 => {
                second.kill();
                terminal.reattach(&world.server, &ann, &id).await
            }
            // The whole control plane starts again.
            1 => {
                world.server.kill();
                world.server.spawn();
                world.server.ready().await;
                terminal.reattach(&world.server, &ann, &id).await
            }
            // Nothing was killed: the client comes another way.
            _ => terminal.reattach(&third, &ann, &id).await,
        };
    }
    terminal.until("end\r\n").await;
    all.append(&mut terminal.output);
    let begin = all.windows(7).position(|window| window == b"begin\r\n").unwrap() + 7;
    let zeros = "0".repeat(1000);
    let expected: String = (1..=LINES).map(|n| format!("{n:06}:{zeros}\r\n")).collect();
    assert!(expected.len() > 100_000_000);
    let (all, expected) = (&all[begin..], expected.as_bytes());
    assert!(all.starts_with(expected), "{} bytes of {}", all.len(), expected.len());
    assert!(all[expected.len()..].starts_with(b"end\r\n"));
}

#[tokio::test]
async fn a_client_that_stops_reading_stops_the_program_and_goes_on_later() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.run("PS1=; stty -echo").await;
    terminal.acknowledges = false;
    let from = terminal.received;
    terminal.type_in("yes & echo $! > pid\n").await;
    // A ring's worth comes, and nothing more.
    let stopped = async {
        while let Ok(Said::Output) = tokio::time::timeout(Duration::from_secs(2), terminal.next()).await {}
    };
    tokio::time::timeout(Duration::from_secs(30), stopped).await.expect("the output stops");
    let ahead = terminal.received - from;
    assert!((64 * 1024..=1024 * 1024).contains(&ahead), "{ahead} bytes without an acknowledgement");
    terminal.acknowledges = true;
    terminal.acknowledge().await;
    let goal = terminal.received + 1_000_000;
    while terminal.received < goal {
        assert_eq!(terminal.next().await, Said::Output);
    }
    terminal.type_in("kill $(cat pid); wait; echo en''ded\n").await;
    terminal.until("ended").await;
}

#[tokio::test]
async fn whoever_loses_the_right_to_enter_loses_the_terminal_within_seconds() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let team = Team::new(&world).await;
    let ann = &team.ann;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, ann, &id).await;
    terminal.run("true").await;
    let me = ann.api().get("/api/v1/me").await.expect(200);
    let sign_in = me["session_id"].as_str().unwrap();
    let other = ann.api().with_token(world.idp.token("ann", "other"));
    let began = tokio::time::Instant::now();
    other.delete(&format!("/api/v1/me/sessions/{sign_in}")).await.expect(204);
    let end = terminal.until_end().await;
    assert_eq!((&end["code"], &end["retryable"]), (&json!("revoked"), &json!(false)), "{end}");
    assert!(began.elapsed() < Duration::from_secs(5));

    // A user with access, from whom it is taken away; and one who has left the organization.
    let mut team = team;
    team.ann.person.api = other;
    team.bob_is("member").await;
    let bob = &team.bob;
    for lost in ["access", "membership"] {
        team.bob_may_enter(&id).await;
        let mut terminal = Terminal::open(&world.server, bob, &id).await;
        terminal.run("true").await;
        let path = match lost {
            "access" => team.ann.path(&format!("/{id}/grants/{}", bob.person.id)),
            _ => format!("/api/v1/orgs/{}/members/{}", team.org, bob.person.id),
        };
        team.ann.api().delete(&path).await.expect(204);
        assert_eq!(terminal.until_end().await["code"], "revoked", "{lost}");
    }

    // The machine is given back under a terminal.
    let mut terminal = Terminal::open(&world.server, &team.ann, &id).await;
    terminal.run("true").await;
    team.ann.release(&id).await;
    let end = terminal.until_end().await;
    assert!(end["code"] == "revoked" || end["reason"] == "ended", "{end}");
}

#[tokio::test]
async fn when_the_agent_dies_the_session_ends_and_no_process_is_left() {
    let world = World::start_simulated().await;
    let mut nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    let marker = format!("98{}", std::process::id());
    terminal.type_in(&format!("sleep {marker} & sleep {marker}\n")).await;
    let running = || async { (sleeping_count(&marker) == 2).then_some(()) };
    eventually("both processes run", running).await;
    nodes.kill();
    let end = terminal.until_end().await;
    assert_eq!((&end["code"], &end["retryable"]), (&json!("tunnel_lost"), &json!(true)), "{end}");
    eventually("no process is left", || async { (sleeping_count(&marker) == 0).then_some(()) }).await;
    nodes.start();
    // The shell is gone, and its output with it: nobody takes a new one for it.
    let said = eventually_within(LATER, "the node is back", || async {
        let body = json!({ "session_id": terminal.session });
        let (token, session) = token(&ann, &id, body).await;
        match Terminal::attach(&world.server, &id, &token, session, terminal.received).await {
            Err(Said::Control(said)) if said["retryable"] == true => None,
            Err(Said::Control(said)) => Some(said),
            other => panic!("{:?}", other.map(drop)),
        }
    })
    .await;
    assert_eq!(said["code"], "session_ended", "{said}");
    let sessions = ann.api().get(&ann.path(&format!("/{id}/terminal-sessions"))).await.expect(200);
    assert_eq!(sessions["items"][0]["end_reason"], "lost");
}

#[tokio::test]
async fn a_session_whose_time_is_over_is_ended_by_its_node_and_its_recording_is_complete() {
    const SECONDS: i64 = 60;
    let world = World::start_simulated().await;
    world.policy("terminal.session_max_ttl_seconds", SECONDS).await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let began = tokio::time::Instant::now();
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    // It prints to the last second.
    terminal.type_in("while sleep 0.2; do echo tick; done\n").await;
    // A gateway that ended it by itself would say an error, and would not know the last output.
    let end = terminal.until_end().await;
    assert_eq!((&end["type"], &end["reason"]), (&json!("session_closed"), &json!("expired")), "{end}");
    assert!(began.elapsed() >= Duration::from_secs(SECONDS.unsigned_abs()), "{:?}", began.elapsed());
    let recording = sealed(&ann, &id, &terminal.session).await;
    assert_eq!(recording["complete"], true, "{recording}");
    assert_eq!(recording["output_bytes"], terminal.received);
}

#[tokio::test]
async fn gateways_and_nodes_may_stand_in_different_processes() {
    let world = World::start_simulated_with(ServerOptions {
        roles: "api,outbox-relay,node-gateway,node-log-gateway,provisioning-worker,billing-worker".to_owned(),
        ..ServerOptions::default()
    })
    .await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let gateway = world
        .replica_with(ServerOptions { roles: "terminal-gateway".to_owned(), ..ServerOptions::default() })
        .await;
    let mut terminal = Terminal::open(&gateway, &ann, &id).await;
    assert_eq!(terminal.run("echo through-another").await, "through-another");
}
