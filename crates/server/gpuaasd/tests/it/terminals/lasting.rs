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

/// What revocation may take.
const REVOKED_WITHIN: Duration = Duration::from_secs(5);
/// Lines of a stream of 100 MB: a number and a thousand zeros.
const LINES: usize = 100_000;
const LINE_BYTES: usize = 1_009;
/// So much of it comes before what carries it is changed.
const CARRIED: u64 = 25_000_000;

/// Compares a stream with what it must be, piece by piece, and keeps nothing of it.
struct Compared {
    line: Vec<u8>,
    /// Of the line that comes next or has come in part, from 1.
    number: usize,
    /// So many of its bytes have come.
    at: usize,
}

impl Compared {
    fn new() -> Self {
        let mut line = "0".repeat(LINE_BYTES).into_bytes();
        line[6] = b':';
        line[LINE_BYTES - 2..].copy_from_slice(b"\r\n");
        let mut compared = Self { line, number: 0, at: LINE_BYTES };
        compared.next_line();
        compared
    }

    fn next_line(&mut self) {
        (self.number, self.at) = (self.number + 1, 0);
        self.line[..6].copy_from_slice(format!("{:06}", self.number).as_bytes());
    }

    fn is_complete(&self) -> bool {
        self.number > LINES
    }

    /// Takes what came. Answers what of it comes after the stream.
    fn compare<'a>(&mut self, mut piece: &'a [u8]) -> &'a [u8] {
        while !self.is_complete() && !piece.is_empty() {
            let expected = &self.line[self.at..];
            let (now, rest) = piece.split_at(piece.len().min(expected.len()));
            assert!(expected.starts_with(now), "line {} after {} bytes", self.number, self.at);
            (self.at, piece) = (self.at + now.len(), rest);
            if self.at == LINE_BYTES {
                self.next_line();
            }
        }
        piece
    }
}

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
    let mut compared = Compared::new();
    compared.compare(terminal.rest());
    let began = terminal.received - terminal.rest().len() as u64;
    terminal.forget_output();
    // Each wait has a deadline of its own: it is bytes that must keep coming.
    let mut goals = (1..=3).map(|turn| began + turn * CARRIED).zip(0..);
    let mut change = goals.next();
    while !compared.is_complete() {
        assert_eq!(terminal.next().await, Said::Output);
        let rest = compared.compare(&terminal.output).to_vec();
        terminal.output = rest;
        let Some((_, turn)) = change.filter(|(goal, _)| terminal.received >= *goal) else { continue };
        change = goals.next();
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
    assert!(change.is_none(), "everything was changed under it");
    let bytes = terminal.received - began - terminal.output.len() as u64;
    assert_eq!(bytes, (LINES * LINE_BYTES) as u64);
    assert!(bytes > 100_000_000);
    assert_eq!(terminal.until("end\r\n").await, "", "nothing else came");
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
    assert!(began.elapsed() < REVOKED_WITHIN, "{:?}", began.elapsed());

    // A user with access, from whom it is taken away; who becomes a viewer; who leaves the project, and the organization.
    let mut team = team;
    team.ann.person.api = other;
    team.bob_is("member").await;
    let (ann, bob) = (team.ann.api(), &team.bob);
    let grant = team.ann.path(&format!("/{id}/grants/{}", bob.person.id));
    let member = format!("/api/v1/projects/{}/members/{}", team.ann.project, bob.person.id);
    let org_member = format!("/api/v1/orgs/{}/members/{}", team.org, bob.person.id);
    team.bob_may_enter(&id).await;
    for lost in ["access", "role", "project", "organization"] {
        let mut terminal = Terminal::open(&world.server, bob, &id).await;
        terminal.run("true").await;
        match lost {
            "access" => ann.delete(&grant).await.expect(204),
            "role" => ann.put(&member, json!({ "role": "viewer" })).await.expect(200),
            "project" => ann.delete(&member).await.expect(204),
            _ => ann.delete(&org_member).await.expect(204),
        };
        let revoked = tokio::time::Instant::now();
        assert_eq!(terminal.until_end().await["code"], "revoked", "{lost}");
        assert!(revoked.elapsed() < REVOKED_WITHIN, "{lost}: {:?}", revoked.elapsed());
        match lost {
            "access" => team.bob_may_enter(&id).await,
            "role" | "project" => team.bob_is("member").await,
            _ => {}
        }
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
