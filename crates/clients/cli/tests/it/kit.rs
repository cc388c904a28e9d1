//! The program under test, a server for it, and people who sign in.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::Value;
use testkit::{Browser, Server, TestDb};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
};

const TIME_LIMIT: Duration = Duration::from_secs(60);
pub const PASSWORD: &str = "correct horse battery staple 1"; // secret-scan: allow

/// One person's program: a home directory of its own.
pub struct Gpuaas {
    home: tempfile::TempDir,
    env: Vec<(String, String)>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.out
    }

    #[track_caller]
    pub fn json(self) -> Value {
        let out = self.ok();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// The message, when it failed as expected.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert_eq!(self.out, "", "results only on standard output");
        self.err
    }
}

impl Gpuaas {
    pub fn new(server: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        Self { home, env: vec![("GPUAAS_SERVER".to_owned(), server.to_owned())] }
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same person with more variables.
    pub fn with(&self, more: &[(&str, &str)]) -> Runner<'_> {
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Runner { person: self, more }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.home.path().join("gpuaas").join(name)
    }

    /// What is stored about the sign-in.
    pub fn credentials(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.file("credentials.json")).unwrap()).unwrap()
    }

    pub fn write_credentials(&self, content: &Value, mode: u32) {
        let path = self.file("credentials.json");
        std::fs::write(&path, content.to_string()).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        self.start_with(arguments, &[])
    }

    fn start_with(&self, arguments: &[&str], more: &[(String, String)]) -> Child {
        let mut command = self.command(arguments, more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// The program on a terminal of its own. Standard output may be something else.
    pub fn start_on(&self, terminal: &pty_process::Pts, arguments: &[&str], output: Option<Stdio>) -> Child {
        let mut command = pty_process::Command::from(self.command(arguments, &[]));
        if let Some(output) = output {
            command = command.stdout(output);
        }
        command.spawn_borrowed(terminal).unwrap()
    }

    // Programs are started here, and only here.
    #[allow(clippy::disallowed_methods)]
    fn command(&self, arguments: &[&str], more: &[(String, String)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuaas"));
        let inherited =
            std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("GPUAAS_"));
        command
            .env_clear()
            .envs(inherited)
            .env("XDG_CONFIG_HOME", self.home.path())
            .env("XDG_CACHE_HOME", self.home.path().join("cache"))
            .envs(self.env.iter().chain(more).cloned())
            .args(arguments)
            .kill_on_drop(true);
        command
    }

    pub async fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, "").await
    }

    pub async fn run_with(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = self.start(arguments);
        let mut stdin = child.stdin.take().unwrap();
        // A program that does not read its input is fine.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        finish(child).await
    }

    /// `-o json`.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        self.run(&[arguments, &["-o", "json"]].concat()).await.json()
    }

    /// Signs in with a browser; a one-time password is changed on the way.
    pub async fn sign_in(&self, email: &str, password: &str) {
        let mut child = self.start(&["auth", "login", "--no-browser"]);
        let address = line_of(&mut child, "/auth/authorize?").await;
        let mut browser = Browser::default();
        let page = browser.open(address.trim().parse().unwrap(), None).await;
        let page = enter(&mut browser, page, email, password).await;
        assert!(page.html.contains("You are signed in"), "{}: {}", page.url, page.html);
        finish(child).await.ok();
    }
}

/// One run of a person's program with variables of its own.
pub struct Runner<'a> {
    person: &'a Gpuaas,
    more: Vec<(String, String)>,
}

impl Runner<'_> {
    pub async fn run(&self, arguments: &[&str]) -> Ran {
        finish(self.person.start_with(arguments, &self.more)).await
    }
}

/// Enters e-mail and password where they are asked for, and a new password where one is wanted.
pub async fn enter(browser: &mut Browser, page: testkit::Page, email: &str, password: &str) -> testkit::Page {
    let fields = [("email", email), ("password", password)];
    let page = browser.submit(&page, "/auth/login", &fields, None).await;
    if !page.url.path().starts_with("/auth/password") {
        return page;
    }
    let fields = [("current", password), ("new", PASSWORD), ("again", PASSWORD)];
    browser.submit(&page, "/auth/password", &fields, None).await
}

/// As Ctrl-C does.
pub fn interrupt(child: &Child) {
    send_signal(child, nix::sys::signal::Signal::SIGINT);
}

pub fn send_signal(child: &Child, signal: nix::sys::signal::Signal) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).expect("it runs");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), signal).unwrap();
}

/// The first line of standard error that contains `text`.
pub async fn line_of(child: &mut Child, text: &str) -> String {
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    let read = async {
        loop {
            let mut line = String::new();
            assert_ne!(lines.read_line(&mut line).await.unwrap(), 0, "no line with {text:?} in {seen}");
            if line.contains(text) {
                return line;
            }
            seen.push_str(&line);
        }
    };
    let line = tokio::time::timeout(TIME_LIMIT, read).await.expect("the program prints in time");
    child.stderr = Some(lines.into_inner());
    line
}

pub async fn finish(child: Child) -> Ran {
    let output = tokio::time::timeout(TIME_LIMIT, child.wait_with_output()).await;
    let output = output.expect("the program ends in time").unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A server with its first administrator signed in.
pub struct Place {
    pub db: TestDb,
    pub server: Server,
    pub admin: Gpuaas,
}

impl Place {
    pub async fn start() -> Self {
        let db = TestDb::create().await;
        db.lift_rate_limits().await;
        let server = Server::start(&db).await;
        let admin = Gpuaas::new(&server.base);
        let file: PathBuf = server.dir.path().join("data/first-admin-password");
        let password = std::fs::read_to_string(Path::new(&file)).unwrap();
        admin.sign_in("admin@localhost", password.trim()).await;
        Self { db, server, admin }
    }

    pub fn gpuaas(&self) -> Gpuaas {
        Gpuaas::new(&self.server.base)
    }

    /// Somebody with an account of their own, signed in.
    pub async fn person(&self, email: &str) -> Gpuaas {
        let made = self.admin.json(&["platform", "accounts", "create", email]).await;
        let person = self.gpuaas();
        person.sign_in(email, made["one_time_password"].as_str().unwrap()).await;
        person
    }

    /// An organization of the administrator, with a project in it: their ids.
    pub async fn org_and_project(&self) -> (String, String) {
        let org = text(&self.admin.json(&["platform", "orgs", "create", "acme"]).await["id"]);
        let project = self.admin.json(&["projects", "create", "lab", "--org", "acme"]).await;
        (org, text(&project["id"]))
    }
}

#[track_caller]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}
