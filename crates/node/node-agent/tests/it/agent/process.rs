//! The program itself: joined, run, killed, updated. Over TCP, with the machine's clock.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use chrono::TimeDelta;
use kernel::{Ambient, digest::sha256, hex::Hex};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use node_proto::{
    TaskKind,
    catalog::{Drain, SelfUpdate},
    contract::{Ending, FailureCode},
};
use serde_json::json;
use tokio::net::TcpListener;

use super::{
    gateway::TOKEN,
    node::{Doing, Node},
};

/// A machine with the agent installed, and a control plane.
struct Machine {
    node: Node,
    dir: tempfile::TempDir,
    url: String,
    child: Option<Child>,
}

impl Machine {
    async fn new() -> Self {
        let system = Ambient::system();
        let node = Node::timed(Doing::fine(), system.clone(), system.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let now = system.now();
        node.gateway.use_server_certificate("127.0.0.1", now - TimeDelta::hours(1), now + TimeDelta::days(1));
        node.gateway.reports_lock().patience = Duration::from_secs(60);
        let gateway = node.gateway.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(gateway.clone().serve(stream));
            }
        });
        let dir = tempfile::tempdir().unwrap();
        fs::copy(env!("CARGO_BIN_EXE_gpuaas-agent"), dir.path().join("gpuaas-agent")).unwrap();
        let text = format!("state_dir = '{}'\n", dir.path().join("state").display());
        fs::write(dir.path().join("agent.toml"), text).unwrap();
        Self { node, dir, url, child: None }
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("gpuaas-agent")
    }

    // The program under test.
    #[allow(clippy::disallowed_methods)]
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("--config").arg(self.dir.path().join("agent.toml")).stdin(Stdio::null());
        command
    }

    async fn output(&self, program: &Path, args: &[&str], stdin: Option<&Path>) -> Output {
        let mut command = self.command(program);
        command.args(args);
        if let Some(path) = stdin {
            command.stdin(fs::File::open(path).unwrap());
        }
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    async fn join(&self, token: &str) -> Output {
        let join = self.node.join();
        let path = self.dir.path().join("token");
        fs::write(&path, format!("{token}\n")).unwrap();
        let id = join.node_id.to_string();
        let args = [
            ["enroll", "--url"].as_slice(),
            &[&self.url, "--node-id", &id, "--hostname", "n1", "--root-sha256", &join.root_sha256[0]],
            &["--keyset-key", &join.keyset_key],
        ]
        .concat();
        self.output(&self.program(), &args, Some(&path)).await
    }

    async fn joined() -> Self {
        let machine = Self::new().await;
        let output = machine.join(TOKEN).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        machine
    }

    fn start(&mut self) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let mut command = self.command(&self.program());
        self.child = Some(command.arg("run").stderr(log).spawn().unwrap());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.as_ref().unwrap().id()).unwrap())
    }

    /// Waits for the end of the program; gives whether it was a good one.
    async fn ended(&mut self) -> bool {
        let mut child = self.child.take().unwrap();
        tokio::task::spawn_blocking(move || child.wait().unwrap().success()).await.unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

#[tokio::test]
async fn the_program_joins_works_survives_a_kill_and_stops_when_asked() {
    let mut machine = Machine::new().await;
    assert!(!machine.join("stolen").await.status.success());
    assert!(machine.join(TOKEN).await.status.success());
    machine.start();
    let first = machine.node.queue(&machine.node.task(1));
    machine.node.gateway.until("the result", |told| told.results.contains_key(&first)).await;
    assert!(
        machine.node.gateway.reports_lock().heartbeats.last().is_some_and(|beat| !beat.boot_id.is_empty())
    );

    // A second agent on the same journal is refused.
    let second = machine.output(&machine.program(), &["run"], None).await;
    assert!(String::from_utf8_lossy(&second.stderr).contains("another agent"));

    kill(machine.pid(), Signal::SIGKILL).unwrap();
    machine.ended().await;
    // Handed out until it is held: the connection of the dead agent may swallow it.
    let again = machine.node.sign(&machine.node.task(1));
    machine.node.gateway.reports_lock().sticky.push((first, again));
    machine.start();
    machine.node.gateway.until("the same again", |told| told.results[&first].len() == 2).await;
    let told = machine.node.gateway.reports_lock().results[&first].clone();
    assert_eq!(told[0], told[1]);
    assert!(matches!(told[0].ending, Ending::Succeeded { .. }));
    machine
        .node
        .gateway
        .until("the drain", |told| told.heartbeats.last().is_some_and(|b| b.inventory.drained))
        .await;

    let said = machine.output(&machine.program(), &["doctor"], None).await;
    let text = String::from_utf8_lossy(&said.stdout);
    for part in
        ["responds and trusts this node", "ok    certificate", "ok    trust", "ok    clock", "ok    journal"]
    {
        assert!(text.contains(part), "{text}");
    }
    machine
        .node
        .gateway
        .until("the log", |told| told.log_lines.iter().any(|line| line.contains("in contact")))
        .await;

    kill(machine.pid(), Signal::SIGTERM).unwrap();
    assert!(machine.ended().await);
    assert!(!machine.log().contains(TOKEN));
}

fn update(program: &[u8], version: &str) -> serde_json::Value {
    let sha256 = Hex(sha256(program).to_vec()).to_string();
    json!({ "version": version, "sha256": sha256, "size_bytes": program.len() })
}

#[tokio::test]
async fn an_update_is_fetched_started_and_confirmed() {
    let mut machine = Machine::joined().await;
    // The same program in other words: what follows an executable's end does not matter to it.
    let mut program = fs::read(machine.program()).unwrap();
    program.extend_from_slice(b"more");
    let params = update(&program, node_agent::program::VERSION);
    machine.node.gateway.reports_lock().program = program.clone();
    machine.start();
    let id = machine.node.queue(&machine.node.task_of(1, SelfUpdate::TYPE.name(), params));
    machine.node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    let told = machine.node.gateway.reports_lock().results[&id].clone();
    assert!(
        matches!(&told[0].ending, Ending::Succeeded { output } if output["rolled_back"] == false),
        "{told:?}"
    );
    assert_eq!(fs::read(machine.program()).unwrap(), program);
    // The new program goes on working, in the same process.
    let next = machine.node.queue(&machine.node.task_of(2, Drain::TYPE.name(), json!({ "reason": "x" })));
    machine.node.gateway.until("more work", |told| told.results.contains_key(&next)).await;
    kill(machine.pid(), Signal::SIGTERM).unwrap();
    assert!(machine.ended().await);
}

#[tokio::test]
async fn an_update_that_does_not_come_up_is_rolled_back_and_reported() {
    let mut machine = Machine::joined().await;
    let program = b"#!/bin/sh\ncase \"$*\" in version) echo 9.9.9 ;; *) exit 3 ;; esac\n".to_vec();
    machine.node.gateway.reports_lock().program = program.clone();
    machine.start();
    let id = machine.node.queue(&machine.node.task_of(1, SelfUpdate::TYPE.name(), update(&program, "9.9.9")));
    assert!(!machine.ended().await);
    assert_eq!(fs::read(machine.program()).unwrap(), program);
    // What the service manager does.
    let previous = machine.dir.path().join("gpuaas-agent.previous");
    for _ in 0..3 {
        assert!(machine.output(&previous, &["guard"], None).await.status.success());
        machine.start();
        let gateway = machine.node.gateway.clone();
        let child = machine.child.as_mut().unwrap();
        // Either it works and tells, or it ends.
        let works = loop {
            if gateway.reports_lock().results.contains_key(&id) {
                break true;
            }
            if child.try_wait().unwrap().is_some() {
                break false;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        if works {
            break;
        }
        machine.child = None;
    }
    machine.node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    let told = machine.node.gateway.reports_lock().results[&id].clone();
    assert!(
        matches!(&told[0].ending, Ending::Succeeded { output } if output["rolled_back"] == true),
        "{told:?}"
    );
    assert_ne!(fs::metadata(machine.program()).unwrap().permissions().mode() & 0o111, 0);
}

#[tokio::test]
async fn a_program_that_is_not_the_announced_one_changes_nothing() {
    let mut machine = Machine::joined().await;
    machine.node.gateway.reports_lock().program = b"something else".to_vec();
    machine.start();
    let id = machine.node.queue(&machine.node.task_of(
        1,
        SelfUpdate::TYPE.name(),
        update(b"the program", "9.9.9"),
    ));
    machine.node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    let told = machine.node.gateway.reports_lock().results[&id].clone();
    assert!(matches!(&told[0].ending, Ending::Failed { failure } if failure.code == FailureCode::Driver));
    kill(machine.pid(), Signal::SIGTERM).unwrap();
    assert!(machine.ended().await);
}
