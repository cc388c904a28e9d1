//! Networks that are away for a while, and gateways behind one address.

use std::{net::SocketAddr, time::Duration};

use testkit::{Flow, Server, ServerOptions, Tenant, Wire, World, eventually, eventually_within, free_port};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};

use super::{
    client::{HasAddress, LATER, Said, Terminal},
    drawn_screen::{DrawnScreen, Editor, load_again},
    lasting::counted,
    slice,
};

/// A minute without a word: longer than it takes both ends to notice.
const CUT: Duration = Duration::from_secs(60);
const LINES: u32 = 200_000;
/// The editor draws when the network has been away for about so long.
const DRAWN_AFTER_SECONDS: u32 = 10;

/// A server whose node listener is named to nodes as `key` says, and reached by them through a wire.
async fn wired(key: &str) -> (Wire, Vec<(String, String)>) {
    let port = free_port();
    let wire = Wire::to(&format!("https://127.0.0.1:{port}")).await;
    let set = |key: &str, value: String| (format!("GPUAAS__NODE_GATEWAY__{key}"), value);
    let env = vec![set("LISTEN", format!("127.0.0.1:{port}")), set(key, wire.url.clone())];
    (wire, env)
}

/// The end of a terminal whose node is not heard of.
async fn until_lost(terminal: &mut Terminal) {
    let lost = loop {
        match tokio::time::timeout(CUT, terminal.next()).await.expect("the end is noticed") {
            Said::Output => {}
            other => break other,
        }
    };
    let Said::Control(lost) = lost else { panic!("{lost:?}") };
    assert_eq!((lost["code"].as_str(), lost["retryable"].as_bool()), (Some("tunnel_lost"), Some(true)));
}

/// Cuts the wire for a minute under a long output and under an editor.
async fn minute_is_survived(wire: &Wire, server: &Server, ann: &Tenant, id: &str) {
    let mut editing = Terminal::open(server, ann, id).await;
    let mut screen = DrawnScreen::of_client();
    let mut editor = Editor::open(&mut editing, &mut screen).await;
    editor.insert(&mut editing, &mut screen, "added before").await;
    let mut printing = Terminal::open(server, ann, id).await;
    printing.run("PS1=; stty -echo").await;
    printing.type_in(&format!("echo be''gin; seq 1 {LINES}; echo en''d\n")).await;
    printing.until("begin\r\n").await;
    let goal = printing.received + 100_000;
    while printing.received < goal {
        assert_eq!(printing.next().await, Said::Output);
    }
    let line = "added while the network was away";
    editor.insert_later(&mut editing, &mut screen, DRAWN_AFTER_SECONDS, line).await;
    wire.set(Flow::Silent);
    let cut = tokio::time::Instant::now();
    tokio::join!(until_lost(&mut printing), until_lost(&mut editing));
    screen.draw(&mut editing);
    tokio::time::sleep_until(cut + CUT).await;
    wire.set(Flow::Open);

    let mut all = printing.rest().to_vec();
    let mut printing = printing.reattach(server, ann, id).await;
    printing.until("end\r\n").await;
    all.extend_from_slice(&printing.output);
    let expected = counted(LINES);
    assert!(all.starts_with(&expected), "{} bytes of {}", all.len(), expected.len());
    assert!(all[expected.len()..].starts_with(b"end\r\n"));
    let mut editing = editing.reattach(server, ann, id).await;
    editor.until_shown(&mut editing, &mut screen).await;
    editor.insert(&mut editing, &mut screen, "added after").await;
    let mut drawn_anew = DrawnScreen::of_client();
    let mut reloaded = load_again(&editing, server, ann, id).await;
    let is_same = |drawn: &DrawnScreen| drawn.picture() == screen.picture();
    drawn_anew.until(&mut reloaded, "the same screen, drawn anew", is_same).await;
}

#[tokio::test]
async fn a_gateway_that_nodes_do_not_reach_for_a_minute_costs_no_byte_and_the_screen_is_right() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let (wire, env) = wired("TUNNEL_URL").await;
    let roles = "terminal-gateway".to_owned();
    let gateway = world.replica_with(ServerOptions { roles, env, ..ServerOptions::default() }).await;
    minute_is_survived(&wire, &gateway, &ann, &id).await;
}

#[tokio::test]
async fn a_node_without_network_for_a_minute_costs_no_byte_and_the_screen_is_right() {
    let (wire, env) = wired("URL").await;
    let world = World::start_simulated_with(ServerOptions { env, ..ServerOptions::default() }).await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    minute_is_survived(&wire, &world.server, &ann, &id).await;
    assert_eq!(world.node_state(&nodes.ids[0]).await, "active");
}

/// Tunnels that nodes have dialled to this server.
async fn tunnels_dialled(server: &Server) -> Option<u32> {
    let metrics = reqwest::get(format!("{}/metrics", server.ops)).await.ok()?.text().await.ok()?;
    let count = metrics.lines().find_map(|line| line.strip_prefix("node_tunnels_total "))?;
    count.trim().parse().ok()
}

#[tokio::test]
async fn a_node_with_a_new_certificate_keeps_its_streams_and_opens_new_ones() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    world.policy("terminal.sessions_per_allocation", 64).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut first = Terminal::open(&world.server, &ann, &id).await;
    first.run("mark=still-here").await;
    assert_eq!(tunnels_dialled(&world.server).await, Some(1));
    world.db.sql("UPDATE nodes SET rekey_since = clock_timestamp()").await;
    let used = "SELECT count(*) FROM node_certificates WHERE first_used_at IS NOT NULL";
    eventually("the new certificate is used", || async { (world.count(used).await >= 2).then_some(()) })
        .await;
    // The gateway takes no new streams on the tunnel of the old certificate: the node dials once more.
    eventually_within(LATER, "a new tunnel", || async {
        let mut terminal = Terminal::open(&world.server, &ann, &id).await;
        terminal.type_in("exit\n").await;
        terminal.until_end().await;
        (tunnels_dialled(&world.server).await? >= 2).then_some(())
    })
    .await;
    assert_eq!(first.run("echo $mark").await, "still-here");
}

/// One address before several servers, which get the connections in turn.
struct InTurn(String);

impl HasAddress for InTurn {
    fn address(&self) -> &str {
        &self.0
    }
}

impl InTurn {
    async fn before(servers: [&Server; 2]) -> Self {
        let addresses: Vec<SocketAddr> =
            servers.iter().map(|server| server.base.trim_start_matches("http://").parse().unwrap()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            for turn in addresses.into_iter().cycle() {
                let Ok((mut client, _)) = listener.accept().await else { return };
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(turn).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self(address)
    }
}

#[tokio::test]
async fn two_gateways_behind_one_address_serve_each_others_sessions() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 2)]).await;
    let ann = world.tenant("ann").await;
    let machines = [ann.active(slice(8)).await, ann.active(slice(8)).await];
    let gateway = || ServerOptions { roles: "terminal-gateway".to_owned(), ..ServerOptions::default() };
    let (first, second) = (world.replica_with(gateway()).await, world.replica_with(gateway()).await);
    let address = InTurn::before([&first, &second]).await;
    let mut terminals = Vec::new();
    for number in 0..6 {
        let machine = &machines[number / 3];
        let mut terminal = Terminal::open(&address, &ann, machine).await;
        terminal.run(&format!("mark={number}")).await;
        terminals.push((number, machine, terminal));
    }
    // An odd number in between: each comes to the other gateway now.
    let _odd = Terminal::open(&address, &ann, &machines[0]).await;
    for (number, machine, terminal) in terminals {
        let mut other = terminal.reattach(&address, &ann, machine).await;
        assert_eq!(other.run("echo $mark").await, number.to_string());
    }
    for server in [&first, &second] {
        eventually("both gateways have served", || async {
            let metrics = reqwest::get(format!("{}/metrics", server.ops)).await.ok()?.text().await.ok()?;
            let count =
                metrics.lines().find_map(|line| line.strip_prefix("terminal_connect_seconds_count "))?;
            (count.trim().parse::<u32>().ok()? >= 6).then_some(())
        })
        .await;
    }
}
