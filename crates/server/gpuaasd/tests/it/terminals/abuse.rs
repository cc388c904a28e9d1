//! Output without end, readers that stop, many sessions at once: what a session may cost the others.

use std::time::Duration;

use futures_util::{StreamExt as _, future::join_all, stream};
use kernel::{digest::sha256, hex::Hex};
use testkit::{SimulatedNodes, World};
use tokio::time::Instant;

use super::{
    client::{Said, Terminal},
    recorded::Recorded,
    slice,
};

/// Resident memory of a process, in KiB.
fn resident_kib(pid: u32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Of the gateway, and of the process of all agents.
fn memory(world: &World, nodes: &SimulatedNodes) -> [i64; 2] {
    [resident_kib(world.server.pid()), resident_kib(nodes.pid())]
}

/// For this long a program prints and nobody reads.
const STALLED: Duration = Duration::from_secs(30);
/// Allocators keep some; what is buffered without a bound is hundreds of megabytes after this time.
const GROWTH_KIB: i64 = 24 * 1024;

#[tokio::test]
async fn output_without_end_to_readers_that_stop_costs_no_memory_and_the_sessions_live_on() {
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminals = Vec::new();
    for program in ["yes", "cat /dev/urandom", "yes", "cat /dev/urandom"] {
        let mut terminal = Terminal::open(&world.server, &ann, &id).await;
        terminal.run("PS1=; stty -echo").await;
        terminal.type_in(&format!("{program} & echo $! > pid-$$\n")).await;
        terminals.push(terminal);
    }
    // Two do not acknowledge, and two do not even read their sockets. All buffers on the way fill up.
    for terminal in &mut terminals[..2] {
        terminal.acknowledges = false;
        while let Ok(Said::Output) = tokio::time::timeout(Duration::from_secs(2), terminal.next()).await {
            terminal.forget_output();
        }
    }
    let before = memory(&world, &nodes);
    let until = Instant::now() + STALLED;
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = memory(&world, &nodes);
        for (before, now) in before.iter().zip(now) {
            assert!(now - before < GROWTH_KIB, "memory grew from {before} to {now} KiB");
        }
    }
    for terminal in &mut terminals {
        terminal.acknowledges = true;
        terminal.acknowledge().await;
        let goal = terminal.received + 1_000_000;
        while terminal.received < goal {
            assert_eq!(terminal.next().await, Said::Output);
            terminal.forget_output();
        }
        terminal.type_in("kill $(cat pid-$$); wait; echo alive-$((40+2))-\n").await;
        terminal.forget_output();
        terminal.until("alive-42-").await;
    }
}

#[tokio::test]
async fn two_hundred_sessions_at_once_each_have_their_own_output() {
    const SESSIONS: usize = 200;
    const MACHINES: usize = 4;
    const STARTED_AT_ONCE: usize = 16;
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    world.policy("terminal.sessions_per_allocation", 50).await;
    let mut machines = Vec::new();
    for _ in 0..MACHINES {
        machines.push(ann.active(slice(1)).await);
    }
    let sessions = (0..SESSIONS).map(|number| {
        let (world, ann, machine) = (&world, &ann, &machines[number % MACHINES]);
        async move {
            let mut terminal = Terminal::open(&world.server, ann, machine).await;
            terminal.type_in(&format!("echo session-{number}-$((1+1))-\n")).await;
            terminal.until(&format!("session-{number}-2-")).await;
            terminal
        }
    });
    let mut terminals: Vec<_> = stream::iter(sessions).buffered(STARTED_AT_ONCE).collect().await;
    let again = terminals.iter_mut().enumerate().map(|(number, terminal)| async move {
        terminal.type_in(&format!("echo again-{number}-$((1+2))-\n")).await;
        terminal.until(&format!("again-{number}-3-")).await;
        terminal.session.clone()
    });
    let mut ids = join_all(again).await;
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), SESSIONS);
}

#[tokio::test]
async fn bytes_arrive_as_they_were_printed_whatever_they_are() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.run("PS1=; stty -echo").await;
    terminal.run("head -c 8000000 /dev/urandom > blob").await;
    let digest = terminal.run("sha256sum < blob | cut -c1-64").await;
    terminal.type_in("stty -opost; echo; printf be''gin; cat blob; printf '\\n'; stty opost\n").await;
    terminal.until("begin").await;
    terminal.take_output(8_000_000).await;
    let blob = terminal.after_mark(8_000_000);
    assert_eq!(Hex(sha256(blob).to_vec()).to_string(), digest);

    // Characters of two to four bytes, at every offset against whatever pieces the bytes come in.
    let text = "ä€𝄞".repeat(20_000);
    terminal.forget_output();
    terminal.type_in("for i in $(seq 20000); do printf 'ä€𝄞'; done; printf en''d\n").await;
    let printed = terminal.until("end").await;
    assert!(printed.contains(&text), "{} bytes", printed.len());
}

#[tokio::test]
async fn a_character_whose_bytes_come_one_after_the_other_is_whole_for_the_client_and_in_the_recording() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.run("PS1=; stty -echo").await;
    for character in ["ä", "€", "𝄞"] {
        // Each byte is printed when the one before it was received.
        let bytes = character.bytes().map(|byte| format!("read -r; printf '\\{byte:03o}'"));
        let program = bytes.collect::<Vec<_>>().join("; ");
        terminal.type_in(&format!("printf be''gin; {program}; read -r; printf en''d\n")).await;
        terminal.until("begin").await;
        for count in 1..=character.len() {
            terminal.type_in("\n").await;
            assert_eq!(terminal.next().await, Said::Output);
            assert_eq!(terminal.rest(), &character.as_bytes()[..count], "a byte is a message");
        }
        terminal.type_in("\n").await;
        assert_eq!(terminal.until("end").await, character);
    }
    terminal.type_in("exit\n").await;
    assert_eq!(terminal.until_end().await["reason"], "exited");
    let recorded = Recorded::download(&ann, &id, &terminal.session).await;
    assert!(recorded.verify().unwrap().complete);
    assert_eq!(recorded.output().as_bytes(), terminal.output);
    for character in ["ä", "€", "𝄞"] {
        assert!(recorded.output().contains(&format!("begin{character}end")), "{character}");
    }
}
