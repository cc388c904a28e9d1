//! `gpuaas nodes logs --follow` on simulated nodes, and on a made-up machine with a kernel.

use std::{io::Write as _, time::Duration};

use serde_json::{Value, json};
use testkit::{SimulatedNodes, World};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout},
};

use crate::kit::{Gpuaas, interrupt, text};

const SOON: Duration = Duration::from_secs(60);

struct Place {
    world: World,
    nodes: SimulatedNodes,
    operator: Gpuaas,
}

impl Place {
    async fn start() -> Self {
        let world = World::start_simulated().await;
        let nodes = world.simulated(&[("h200-8", 1)]).await;
        let token = world.admin.token.clone().unwrap();
        let operator = Gpuaas::new(&world.server.base).env("GPUAAS_TOKEN", &token);
        Self { world, nodes, operator }
    }

    /// Has the agent log something; gives what.
    async fn work(&self) -> String {
        let path = format!("/api/v1/platform/nodes/{}/collect", self.nodes.ids[0]);
        let task = self.world.admin.post(&path, json!({ "parts": ["memory"] })).await.expect(202);
        format!("{} is done", text(&task["id"]))
    }

    fn follow(&self, arguments: &[&str]) -> Follower {
        let all = [&["nodes", "logs", &self.nodes.hostnames[0], "--follow"], arguments].concat();
        Follower::start(&self.operator, &all)
    }
}

struct Follower {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
    seen: Vec<String>,
}

impl Follower {
    fn start(operator: &Gpuaas, arguments: &[&str]) -> Self {
        let mut child = operator.start(arguments);
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (out, err) = (BufReader::new(out).lines(), BufReader::new(err).lines());
        Self { child, out, err, seen: Vec::new() }
    }

    /// The first line with this text.
    async fn line(&mut self, wanted: &str) -> String {
        let read = async {
            loop {
                let line = self.out.next_line().await.unwrap().expect("the program goes on");
                self.seen.push(line.clone());
                if line.contains(wanted) {
                    return line;
                }
            }
        };
        tokio::time::timeout(SOON, read).await.unwrap_or_else(|_| panic!("{wanted:?} is not shown"))
    }

    async fn note(&mut self, wanted: &str) {
        let read = async {
            while !self.err.next_line().await.unwrap().expect("the program goes on").contains(wanted) {}
        };
        tokio::time::timeout(SOON, read).await.unwrap_or_else(|_| panic!("{wanted:?} is not said"));
    }
}

#[tokio::test]
async fn new_lines_are_shown_as_they_are_logged_and_none_twice_when_the_gateway_starts_again() {
    let mut place = Place::start().await;
    let mut log = place.follow(&["-o", "json"]);
    log.line("in contact").await;
    let task = place.work().await;
    let line: Value = serde_json::from_str(&log.line(&task).await).unwrap();
    assert_eq!((&line["level"], &line["source"]), (&json!("info"), &json!("tasks")));
    place.world.server.stop().await;
    log.note("The node is not connected").await;
    place.world.server.spawn();
    place.world.server.ready().await;
    let later = place.work().await;
    log.line(&later).await;
    for once in [&task, &later] {
        let shown = log.seen.iter().filter(|line| line.contains(once.as_str())).count();
        assert_eq!(shown, 1, "{once} in {:#?}", log.seen);
    }
    interrupt(&log.child);
    assert_eq!(log.child.wait().await.unwrap().code(), Some(0), "an interrupt is how following ends");
}

#[tokio::test]
async fn lines_of_the_kernel_are_shown_once_however_often_the_gateway_starts_again() {
    let mut world = World::start().await;
    let machine = world.active_machine("gpu-01").await;
    let random = machine.path("proc/sys/kernel/random");
    std::fs::create_dir_all(&random).unwrap();
    std::fs::write(random.join("boot_id"), "5f1d\n").unwrap();
    let says = |text: &str| {
        let kmsg = std::fs::OpenOptions::new().create(true).append(true).open(machine.path("dev/kmsg"));
        kmsg.unwrap().write_all(text.as_bytes()).unwrap();
    };
    says("6,100,1000,-;usb: same\n6,101,1000,-;usb: same\n");
    let token = world.admin.token.clone().unwrap();
    let operator = Gpuaas::new(&world.server.base).env("GPUAAS_TOKEN", &token);
    let mut log = Follower::start(
        &operator,
        &["nodes", "logs", "gpu-01", "--follow", "--source", "kernel", "-o", "json"],
    );
    for (first, next) in [(102, 103), (104, 105)] {
        says(&format!("6,{first},2000,-;before-{first}\n"));
        log.line(&format!("before-{first}")).await;
        world.server.stop().await;
        log.note("The node is not connected").await;
        says(&format!("6,{next},3000,-;after-{next}\n"));
        world.server.spawn();
        world.server.ready().await;
        log.line(&format!("after-{next}")).await;
    }
    let numbers = log
        .seen
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["position"]["number"].clone());
    assert_eq!(numbers.collect::<Vec<_>>(), [100, 101, 102, 103, 104, 105], "{:#?}", log.seen);
}

#[tokio::test]
async fn the_kernels_log_is_only_on_the_node_and_a_simulated_one_has_none() {
    let place = Place::start().await;
    let node = &place.nodes.hostnames[0];
    let said = place.operator.run(&["nodes", "logs", node, "--source", "kernel"]).await.fails(1);
    assert!(said.contains("--follow"), "{said}");
    let said = place.operator.run(&["nodes", "logs", node, "--follow", "--source", "kernel"]).await.fails(4);
    assert!(said.contains("no_such_log"), "{said}");
}

#[tokio::test]
async fn following_ends_when_nobody_reads_the_output() {
    let place = Place::start().await;
    let mut log = place.follow(&[]);
    let line = log.line("in contact").await;
    assert!(line.contains(" info  session: "), "{line}");
    let Follower { mut child, out, err, .. } = log;
    drop((out, err));
    let ended = async {
        loop {
            place.work().await;
            tokio::select! {
                status = child.wait() => return status.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
        }
    };
    let status = tokio::time::timeout(SOON, ended).await.expect("the program ends");
    assert_eq!(status.code(), Some(0));
}
