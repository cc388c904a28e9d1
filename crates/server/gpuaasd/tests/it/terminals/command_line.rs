//! `gpuaas terminal`, as a person types it on a terminal, against the real server and nodes.

use std::{
    fs,
    process::Stdio,
    sync::{Arc, Mutex},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use pty_process::{OwnedWritePty, Size};
use serde_json::{Value, json};
use testkit::{
    Browser, Idp, NEW_PASSWORD, Server, ServerOptions, TestDb, World, eventually_within, made_up_key,
    program, sign_in_first_admin,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
    sync::Notify,
    task::JoinHandle,
    time::timeout,
};

use super::{
    SLICE,
    client::{LATER, SOON},
    processes::sleeping_count,
};
use crate::{ssh::programs::is_seen_in_processes, tools};

/// What a shell prints when it waits for a line.
const PROMPT: &str = "\u{1b}[?2004h";
/// Every token of a terminal, and of a log of a node, begins with it.
const TOKEN: &str = "gpterm_";

/// One person's program, with a home of its own.
struct Person {
    home: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Person {
    fn new(server: &Server) -> Self {
        let home = tempfile::tempdir().unwrap();
        Self { home, variables: vec![("GPUAAS_SERVER", server.base.clone())] }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::from(tools::command(program("gpuaas")));
        command
            .args(arguments)
            .current_dir(self.home.path())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("TERM", "xterm")
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Ran {
        finish(self.command(arguments).spawn().unwrap()).await
    }

    async fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments).await;
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}{}", ran.out, ran.err);
        ran.out
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["-o", "json"]].concat()).await).unwrap()
    }

    /// With a browser, where the one-time password is changed.
    async fn sign_in(&self, email: &str, password: &str) {
        let mut child = self.command(&["auth", "login", "--no-browser"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("an address");
                if line.contains("/auth/authorize?") {
                    return line;
                }
            }
        };
        let address = timeout(SOON, address).await.expect("the program prints in time");
        let mut browser = Browser::default();
        let page = browser.open(address.trim().parse().unwrap(), None).await;
        let page =
            browser.submit(&page, "/auth/login", &[("email", email), ("password", password)], None).await;
        let fields = [("current", password), ("new", NEW_PASSWORD), ("again", NEW_PASSWORD)];
        let page = browser.submit(&page, "/auth/password", &fields, None).await;
        assert!(page.html.contains("You are signed in"), "{}: {}", page.url, page.html);
        assert_eq!(finish(child).await.code, Some(0));
    }

    /// The program on a terminal of its own.
    fn window(&self, arguments: &[&str]) -> Window {
        let (pty, terminal) = pty_process::open().unwrap();
        pty.resize(Size::new(30, 100)).unwrap();
        let child = pty_process::Command::from(self.command(arguments)).spawn(terminal).unwrap();
        let (mut screen, keys) = pty.into_split();
        let shown = Arc::new(Shown::default());
        let seen = shown.clone();
        let reader = tokio::spawn(async move {
            let mut piece = [0; 4096];
            // A terminal that nobody holds any more is an error.
            while let Ok(count @ 1..) = screen.read(&mut piece).await {
                seen.bytes.lock().unwrap().extend_from_slice(&piece[..count]);
                seen.more.notify_one();
            }
        });
        Window { child, keys, shown, reader, looked_at: 0 }
    }
}

async fn finish(child: Child) -> Ran {
    let output = timeout(SOON, child.wait_with_output()).await.expect("the program ends in time").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// What a person sees, and types on.
struct Window {
    child: Child,
    keys: OwnedWritePty,
    shown: Arc<Shown>,
    reader: JoinHandle<()>,
    looked_at: usize,
}

#[derive(Default)]
struct Shown {
    bytes: Mutex<Vec<u8>>,
    more: Notify,
}

impl Window {
    async fn enter(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.bytes.lock().unwrap()).into_owned()
    }

    /// Waits until the text is shown after the last one that was waited for; gives what came before it.
    async fn shows(&mut self, text: &str) -> String {
        let from = self.looked_at;
        let find = || {
            let shown = self.shown.bytes.lock().unwrap();
            let at = shown[from..].windows(text.len()).position(|part| part == text.as_bytes())?;
            Some((String::from_utf8_lossy(&shown[from..from + at]).into_owned(), from + at + text.len()))
        };
        let found = async {
            loop {
                if let Some(found) = find() {
                    return found;
                }
                self.shown.more.notified().await;
            }
        };
        let found = timeout(SOON, found).await;
        let (before, end) = found.unwrap_or_else(|_| panic!("{text:?} is not shown, but {:?}", self.text()));
        self.looked_at = end;
        before
    }

    /// Types a command line and gives what it printed.
    async fn run(&mut self, line: &str) -> String {
        // The markers are not in what is echoed.
        self.enter(&format!("echo be''gin-of-command; {line}; echo en''d-of-command\r")).await;
        self.shows("begin-of-command").await;
        let printed = self.shows("end-of-command").await;
        self.shows(PROMPT).await;
        printed.trim().to_owned()
    }

    /// Waits for the end: the exit code, and all that was shown.
    async fn end(mut self) -> (Option<i32>, String) {
        let ended = timeout(SOON, self.child.wait()).await;
        let status = ended.unwrap_or_else(|_| panic!("the program goes on: {:?}", self.text())).unwrap();
        timeout(SOON, &mut self.reader).await.expect("the terminal ends").unwrap();
        let text = self.text();
        assert!(!text.contains(TOKEN), "{text}");
        (status.code(), text)
    }
}

/// As `make up` starts it: with the built-in issuer, where accounts have passwords.
async fn installation() -> World {
    let db = TestDb::create().await;
    db.lift_rate_limits().await;
    let config = "[fleet]\nauto_approve_simulated = true\n".to_owned();
    let server = Server::start_with(&db, ServerOptions { config, ..ServerOptions::default() }).await;
    let admin = sign_in_first_admin(&server.base, &server.dir.path().join("data")).await;
    World { admin, server, idp: Idp::start().await, db }
}

/// Signed in, with money, and with a machine of two GPUs.
async fn newcomer(world: &World) -> Person {
    let (accounts, email) = ("/api/v1/platform/accounts", "newcomer@example.org");
    let made = world.admin.post(accounts, json!({ "email": email })).await.expect(201);
    let person = Person::new(&world.server);
    person.sign_in(email, made["one_time_password"].as_str().unwrap()).await;
    let orgs = person.json(&["orgs", "list"]).await;
    world.fund(orgs[0]["id"].as_str().unwrap(), 100_000).await;
    fs::write(person.home.path().join("key.pub"), made_up_key()).unwrap();
    person.ok(&["ssh-keys", "create", "key.pub", "--name", "laptop"]).await;
    person.ok(&["launch", SLICE, "--gpus", "2", "--name", "train-1", "--wait", "--timeout", "60"]).await;
    person
}

/// While an operator follows the log of a node.
async fn tokens_of_logs_are_nowhere(world: &World, hostname: &str) {
    let operator = Person::new(&world.server).with("GPUAAS_TOKEN", world.admin.token.clone().unwrap());
    let child = operator.command(&["nodes", "logs", hostname, "--follow"]).spawn().unwrap();
    let metrics = format!("{}/metrics", world.server.ops);
    eventually_within(LATER, "the log is followed through the tunnel", || async {
        let metrics = reqwest::get(&metrics).await.unwrap().text().await.unwrap();
        metrics.contains("node_log_followers 1").then_some(())
    })
    .await;
    assert!(!is_seen_in_processes(TOKEN), "a token is in an argument or a variable");
    kill(Pid::from_raw(child.id().unwrap().cast_signed()), Signal::SIGINT).unwrap();
    let ran = finish(child).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(!ran.out.contains(TOKEN) && !ran.err.contains(TOKEN));
}

#[tokio::test]
async fn a_newcomer_opens_a_terminal_leaves_it_and_comes_back_and_no_token_is_seen() {
    let world = installation().await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let person = newcomer(&world).await;
    let mut window = person.window(&["terminal", "train-1"]);
    window.shows(PROMPT).await;
    let table = window.run("nvidia-smi").await;
    assert!(table.contains("NVIDIA-SMI") && table.matches("NVIDIA H200").count() == 2, "{table}");
    assert_eq!(window.run("stty size").await, "30 100");
    window.keys.resize(Size::new(43, 132)).unwrap();
    let resized = "until [ \"$(stty size)\" = '43 132' ]; do sleep 0.1; done; stty size";
    assert_eq!(window.run(resized).await, "43 132");

    let sign_in = person.ok(&["auth", "token"]).await;
    let secrets = [TOKEN, sign_in.trim()];
    for secret in secrets {
        assert!(!is_seen_in_processes(secret), "a token is in an argument or a variable");
    }
    tokens_of_logs_are_nowhere(&world, &nodes.hostnames[0]).await;

    // The last key was at the end of a line.
    window.enter("echo mark-$((40 + 2))\r").await;
    window.shows("mark-42").await;
    window.shows(PROMPT).await;
    window.enter("~.").await;
    let (code, shown) = window.end().await;
    assert_eq!(code, Some(0), "{shown}");
    let (_, back) = shown.split_once("Detached; come back with: ").expect("how to come back");
    let words: Vec<_> = back.split_whitespace().collect();
    assert_eq!(words[..4], ["gpuaas", "terminal", "train-1", "--session"], "{back}");

    let mut window = person.window(&words[1..]);
    let scrollback = window.shows("mark-42").await;
    assert!(scrollback.contains("NVIDIA-SMI"), "{scrollback}");
    assert_eq!(window.run("stty size").await, "30 100", "the size is that of the new window");
    window.enter("exit 3\r").await;
    let (code, shown) = window.end().await;
    assert_eq!(code, Some(3), "{shown}");
    assert!(shown.contains("The session ended: exit status 3."), "{shown}");
    for log in [world.server.log(), nodes.log()] {
        for secret in secrets {
            assert!(!log.contains(secret), "a token is in a log");
        }
    }
    let history = person.json(&["allocations", "terminals", "list", "train-1"]).await;
    assert_eq!(history.as_array().unwrap().len(), 1, "{history}");
}

#[tokio::test]
async fn a_session_is_listed_and_ended_with_all_that_runs_in_it() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    ann.active(json!({ "sku": SLICE, "gpus": 1, "name": "train-1" })).await;
    let person = Person::new(&world.server)
        .with("GPUAAS_TOKEN", ann.api().token.clone().unwrap())
        .with("GPUAAS_PROJECT", ann.project.clone());
    let mut window = person.window(&["terminal", "train-1"]);
    window.shows(PROMPT).await;
    let marker = format!("97{}", std::process::id());
    window.run(&format!("(setsid sleep {marker} & sleep {marker} &)")).await;
    let running = || async { (sleeping_count(&marker) == 2).then_some(()) };
    eventually_within(LATER, "both processes run", running).await;

    let list = ["allocations", "terminals", "list", "train-1"];
    let open_list = [&list[..], &["--open"]].concat();
    let open = person.json(&open_list).await;
    let session = open[0]["id"].as_str().unwrap().to_owned();
    assert!(open[1].is_null() && open[0]["end_reason"].is_null(), "{open}");
    let delete = ["allocations", "terminals", "delete", "train-1", &session];
    let asked = person.run(&delete).await;
    assert!(asked.code == Some(1) && asked.err.contains("--yes"), "{}", asked.err);
    assert_eq!(window.run("echo still-$((40 + 2))").await, "still-42");

    person.ok(&[&delete[..], &["--yes"]].concat()).await;
    let (code, shown) = window.end().await;
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("the session was ended"), "{shown}");
    let ended = eventually_within(LATER, "the end is in the history", || async {
        let all = person.json(&list).await;
        Some(all[0].clone()).filter(|session| session["ended_at"].is_string())
    })
    .await;
    assert_eq!((&ended["id"], &ended["end_reason"]), (&json!(session), &json!("ended")), "{ended}");
    assert_eq!(person.json(&open_list).await, json!([]));
    let gone = || async { (sleeping_count(&marker) == 0).then_some(()) };
    eventually_within(LATER, "all that ran in it is gone", gone).await;
    let (code, shown) = person.window(&["terminal", "train-1", "--session", &session]).end().await;
    assert_eq!(code, Some(5), "{shown}");
    assert!(shown.contains("has ended"), "{shown}");
}
