//! Terminals on a machine with its real agent: a login of the allocation's user, whose processes nothing outlives.

use recording::Event;
use serde_json::{Value, json};
use testkit::{Tenant, World, eventually, eventually_within};

use super::Launched;
use crate::{
    allocations::real_host::user_of,
    terminals::{
        client::{LATER, Said, Terminal, token},
        recorded::{Recorded, path, sealed},
    },
};

/// Numbers that are printed, and what a terminal shows of them.
const NUMBERS: u32 = 200_000;

fn numbers() -> Vec<u8> {
    (1..=NUMBERS).flat_map(|number| format!("{number}\r\n").into_bytes()).collect()
}

/// Prints them; read up to the first one.
async fn print_numbers(terminal: &mut Terminal) {
    terminal.run("PS1=; stty -echo").await;
    terminal.type_in(&format!("echo be''gin; seq 1 {NUMBERS}; echo en''d\n")).await;
    terminal.until("begin\r\n").await;
}

/// So many bytes more.
async fn read(terminal: &mut Terminal, bytes: u64) {
    let goal = terminal.received + bytes;
    while terminal.received < goal {
        assert_eq!(terminal.next().await, Said::Output);
    }
}

async fn lines(terminal: &mut Terminal, script: &str) -> String {
    terminal.run(script).await.replace("\r\n", "\n")
}

/// A session that has ended, as the list of the machine's has it.
async fn ended(tenant: &Tenant, id: &str, session: &str) -> Value {
    eventually_within(LATER, "the end is in the list", || async {
        let listed = tenant.api().get(&tenant.path(&format!("/{id}/terminal-sessions"))).await.expect(200);
        let found = listed["items"].as_array().unwrap().iter().find(|item| item["id"] == session).cloned();
        found.filter(|item| item["ended_at"].is_string())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_a_login_of_the_allocations_user_and_ends_with_the_allocation() {
    let launched = Launched::new().await;
    let Launched { world, host, bo, id, key, .. } = &launched;
    // What the machine allows its users.
    host.sh("echo '* - nofile 4321' >/etc/security/limits.d/machine.conf");
    let user = user_of(bo, id, host).await;
    let uid = host.sh(&format!("id -u {user}"));

    login(&launched, &user).await;
    an_interrupted_view_misses_nothing(&launched).await;
    leaving_on_purpose_loses_no_place(&launched).await;

    // With the allocation goes all that was started, also what has left its session.
    let mut terminal = Terminal::open(&world.server, bo, id).await;
    let leave_behind = "(setsid nohup sleep 1001 >/dev/null 2>&1 &); nohup sleep 1002 >/dev/null 2>&1 & \
                        sleep 1003\n";
    terminal.type_in(leave_behind).await;
    let running = || async { (host.processes(&uid).matches("sleep").count() == 3).then_some(()) };
    eventually("all run", running).await;
    assert!(host.ssh(&user, key, "true").is_ok());
    bo.release(id).await;
    let end = terminal.until_end().await;
    assert!(end["code"] == "revoked" || end["reason"] == "ended", "{end}");
    assert_eq!(host.processes(&uid), "");
    let ended = ended(bo, id, &terminal.session).await;
    assert!(["released", "ended"].contains(&ended["end_reason"].as_str().unwrap()), "{ended}");
}

async fn login(launched: &Launched, user: &str) {
    let Launched { world, host, bo, id, key, .. } = launched;
    let mut terminal = Terminal::open(&world.server, bo, id).await;
    let who = "id -u; id -g; id -Gn; umask; ulimit -n; ulimit -u; echo $HOME $USER $LOGNAME $SHELL; pwd";
    let signed_in = host.ssh(user, key, who).unwrap();
    assert_eq!(lines(&mut terminal, who).await, signed_in, "as somebody who signs in by SSH");
    assert!(signed_in.contains("\n4321\n") && signed_in.contains(&format!("/home/{user}")), "{signed_in}");
    assert_eq!(
        lines(&mut terminal, "shopt -q login_shell && echo $TERM $LANG").await,
        "xterm-256color C.UTF-8"
    );
    assert_eq!(lines(&mut terminal, "locale charmap; printf 'ä😀' | wc -m").await, "UTF-8\n2");

    // A session of its own, on its own terminal.
    let own = lines(&mut terminal, "ps -o sid=,tty= -p $$").await;
    let (own_session, tty) = own.split_once(' ').unwrap_or_else(|| panic!("{own}"));
    assert!(tty.starts_with("pts/"), "{own}");
    let agents = host.sh("ps -o sid= -C gpuaas-agent");
    assert!(
        !agents.is_empty() && agents.lines().all(|agent| agent.trim() != own_session),
        "{own} of {agents}"
    );
    let leader = host.sh(&format!("ps -o tty=,cmd= -p {own_session}"));
    assert!(leader.starts_with(tty), "{leader}");
    let mut other = Terminal::open(&world.server, bo, id).await;
    let others = lines(&mut other, "ps -o sid=,tty= -p $$").await;
    let (others_session, others_tty) = others.split_once(' ').unwrap();
    assert!(others_session != own_session && others_tty != tty, "{others}");
    other.type_in("exit\n").await;
    assert_eq!(other.until_end().await["exit_status"], 0);

    // Its size, and that a program is told of another one.
    assert_eq!(terminal.run("stty size").await, "24 80");
    let watcher = "sh -c 'trap \"stty size\" WINCH; echo wat''ches; while :; do sleep 0.1; done'\n";
    terminal.type_in(watcher).await;
    terminal.until("watches\r\n").await;
    terminal.control(json!({ "type": "resize", "columns": 100, "rows": 30 })).await;
    terminal.until("30 100\r\n").await;
    terminal.type_in("\u{3}").await;
    assert_eq!(terminal.run("stty size").await, "30 100");
    let uid = host.sh(&format!("id -u {user}"));
    terminal.type_in("sleep 1000\n").await;
    eventually("it sleeps", || async { host.processes(&uid).contains("sleep").then_some(()) }).await;
    terminal.type_in("\u{3}").await;
    terminal.type_in("echo sta''tus-$?\n").await;
    terminal.until("status-130").await;
    assert_eq!(host.processes(&uid).matches("sleep").count(), 0);

    terminal.type_in("exit 7\n").await;
    let end = terminal.until_end().await;
    assert_eq!((&end["reason"], &end["exit_status"]), (&json!("exited"), &json!(7)), "{end}");
    let listed = ended(bo, id, &terminal.session).await;
    assert_eq!((&listed["end_reason"], &listed["exit_status"]), (&json!("exited"), &json!(7)), "{listed}");
    let recorded = recording_of(bo, id, &terminal).await;
    assert_eq!(recorded.output().as_bytes(), terminal.output);
    assert!(recorded.events().contains(&Event::Resize { columns: 100, rows: 30 }));
}

/// The recording of a session that has ended, which is in the list of the machine's and whole.
async fn recording_of(tenant: &Tenant, id: &str, terminal: &Terminal) -> Recorded {
    let recording = sealed(tenant, id, &terminal.session).await;
    assert_eq!(recording["complete"], true, "{recording}");
    assert_eq!(recording["output_bytes"], terminal.received);
    let listed = tenant.api().get(&path(tenant, id, "")).await.expect(200);
    let mut listed = listed["items"].as_array().unwrap().iter();
    assert!(listed.any(|item| item["session_id"] == terminal.session.as_str()), "it is in the list");
    let recorded = Recorded::download(tenant, id, &terminal.session).await;
    assert!(recorded.verify().unwrap().complete);
    recorded
}

async fn an_interrupted_view_misses_nothing(launched: &Launched) {
    let Launched { world, bo, id, .. } = launched;
    let mut terminal = Terminal::open(&world.server, bo, id).await;
    print_numbers(&mut terminal).await;
    read(&mut terminal, 300_000).await;
    let mut shown = terminal.rest().to_vec();
    // Cut off; then taken over while the window is open.
    terminal.hang_up().await;
    terminal = terminal.reattach(&world.server, bo, id).await;
    read(&mut terminal, 300_000).await;
    shown.extend_from_slice(&terminal.output);
    terminal = terminal.reattach(&world.server, bo, id).await;
    terminal.until("end\r\n").await;
    shown.extend_from_slice(&terminal.output);
    let numbers = numbers();
    assert!(shown.starts_with(&numbers), "{} bytes of {}", shown.len(), numbers.len());
    assert!(shown[numbers.len()..].starts_with(b"end\r\n"));
    terminal.type_in("exit\n").await;
    assert_eq!(terminal.until_end().await["reason"], "exited");
    let recorded = recording_of(bo, id, &terminal).await.output();
    let (_, printed) = recorded.split_once("begin\r\n").unwrap();
    assert!(printed.as_bytes().starts_with(&shown), "{} bytes are recorded", printed.len());
}

/// The program goes on without a window. What nobody saw may be kept no more; the rest is at its place, and the recording
/// says whether something is missing.
async fn leaving_on_purpose_loses_no_place(launched: &Launched) {
    let Launched { world, bo, id, .. } = launched;
    let mut terminal = Terminal::open(&world.server, bo, id).await;
    print_numbers(&mut terminal).await;
    read(&mut terminal, 300_000).await;
    let mut shown = terminal.rest().to_vec();
    terminal.control(json!({ "type": "detach" })).await;
    // What came before that was heard has been shown too.
    terminal.forget_output();
    assert_eq!(terminal.until_end().await, Value::Null);
    shown.extend_from_slice(&terminal.output);
    let left_at = terminal.received;
    terminal = terminal.reattach(&world.server, bo, id).await;
    let missed = usize::try_from(terminal.received - left_at).unwrap();
    terminal.until("end\r\n").await;
    let numbers = numbers();
    assert!(numbers.starts_with(&shown), "{} bytes", shown.len());
    let last = &numbers[shown.len() + missed..];
    assert!(terminal.output.starts_with(last), "{} bytes after {missed}", terminal.output.len());
    assert!(terminal.output[last.len()..].starts_with(b"end\r\n"));
    terminal.type_in("exit\n").await;
    assert_eq!(terminal.until_end().await["reason"], "exited");
    let recording = sealed(bo, id, &terminal.session).await;
    assert_eq!(recording["complete"], missed == 0, "{recording}");
}

/// A session whose agent was killed, when the agent is there again.
async fn assert_lost(world: &World, tenant: &Tenant, id: &str, terminal: &Terminal) {
    let said = eventually_within(LATER, "the machine is back", || async {
        let (text, session) = token(tenant, id, json!({ "session_id": terminal.session })).await;
        match Terminal::attach(&world.server, id, &text, session, terminal.received).await {
            Err(Said::Control(said)) if said["retryable"] == true => None,
            Err(Said::Control(said)) => Some(said),
            other => panic!("{:?}", other.map(drop)),
        }
    })
    .await;
    assert_eq!(said["code"], "session_ended", "{said}");
    let lost = ended(tenant, id, &terminal.session).await;
    assert_eq!(lost["end_reason"], "lost", "{lost}");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_agent_of_a_machine_is_killed_the_client_is_told_and_the_next_agent_leaves_no_process() {
    let mut launched = Launched::new().await;
    let Launched { world, host, bo, id, .. } = &mut launched;
    let user = user_of(bo, id, host).await;
    let uid = host.sh(&format!("id -u {user}"));
    let mut terminal = Terminal::open(&world.server, bo, id).await;
    // In the foreground, in the background, and in sessions of their own, where no hangup comes.
    let start = "(setsid nohup sleep 1001 >/dev/null 2>&1 &); setsid -f sleep 1002; nohup sleep 1003 & \
                 sleep 1004 & sleep 1005\n";
    terminal.type_in(start).await;
    let running = || async { (host.processes(&uid).matches("sleep").count() == 5).then_some(()) };
    eventually("all run", running).await;

    host.kill_agent();
    let end = terminal.until_end().await;
    assert_eq!((&end["code"], &end["retryable"]), (&json!("tunnel_lost"), &json!(true)), "{end}");
    host.run_agent();
    let host = &*host;
    let gone = || async { (host.processes(&uid).is_empty()).then_some(()) };
    eventually_within(LATER, "no process is left", gone).await;
    assert_lost(world, bo, id, &terminal).await;

    let mut next = Terminal::open(&world.server, bo, id).await;
    assert_eq!(next.run("id -un; jobs").await, user);
}
