//! The real agent as a process.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use nix::{sys::signal::Signal, unistd::Pid};
use serde_json::Value;

use crate::{
    process::{child_exit, child_kill},
    program,
};

/// `gpuaas-agent` with a state directory of its own, killed when dropped.
pub struct AgentProcess {
    pub dir: tempfile::TempDir,
    /// Extra environment of every command.
    pub env: Vec<(String, String)>,
    child: Option<Child>,
}

impl AgentProcess {
    /// A directory with a configuration; `extra` is more TOML.
    pub fn prepare(extra: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("gpuaas-agent-").tempdir().expect("a temporary directory");
        let agent = Self { dir, env: Vec::new(), child: None };
        agent.configure(extra);
        agent
    }

    /// Writes the configuration anew, for the next start.
    pub fn configure(&self, extra: &str) {
        let text = format!("state_dir = \"{}\"\n{extra}\n", self.state_dir().display());
        std::fs::write(self.dir.path().join("agent.toml"), text).expect("write the configuration");
    }

    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("agent.log")).unwrap_or_default()
    }

    /// What the journal on disk says of a task: `taken`, `started`, `finished` or `told`.
    pub fn journal(&self, task: &str) -> Option<String> {
        let bytes = std::fs::read(self.state_dir().join(format!("tasks/{task}.json"))).ok()?;
        let record: Value = serde_json::from_slice(&bytes).ok()?;
        record["state"]["state"].as_str().map(str::to_owned)
    }

    /// Puts another certificate and key in the place of those that the agent has.
    pub fn replace_pair(&self, chain_pem: &str, key_pem: &str) {
        for (name, content) in [("key.pem", key_pem), ("chain.pem", chain_pem)] {
            std::fs::write(self.state_dir().join(name), content).expect("write a pair");
        }
    }

    // Test processes are started here, and only here.
    #[allow(clippy::disallowed_methods)]
    fn command(&self) -> Command {
        let mut command = Command::new(program("gpuaas-agent"));
        command.arg("--config").arg(self.dir.path().join("agent.toml")).envs(self.env.iter().cloned());
        command
    }

    /// Runs `enroll` or `repair` with the token on standard input; gives whether it worked, and all output.
    pub fn join(&self, verb: &str, join: &Value, token: &str) -> (bool, String) {
        let text = |name: &str| join[name].as_str().unwrap_or_else(|| panic!("{name} in {join}")).to_owned();
        let roots: Vec<&str> =
            join["root_sha256"].as_array().expect("roots").iter().filter_map(Value::as_str).collect();
        let mut command = self.command();
        command
            .arg(verb)
            .args(["--url", &text("url"), "--node-id", &text("node_id"), "--hostname", &text("hostname")])
            .args(["--root-sha256", &roots.join(","), "--keyset-key", &text("keyset_key")]);
        run_with_input(command, token)
    }

    /// Repairs with nothing but a token: the agent knows the rest.
    pub fn repair(&self, token: &str) -> (bool, String) {
        let mut command = self.command();
        command.arg("repair");
        run_with_input(command, token)
    }

    /// Runs any other subcommand to its end.
    pub fn run_command(&self, args: &[&str]) -> (bool, String) {
        let mut command = self.command();
        command.args(args);
        run_with_input(command, "")
    }

    /// Starts `run`.
    pub fn start(&mut self) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join("agent.log"))
            .expect("open the log");
        let errors = log.try_clone().expect("a second handle");
        let mut command = self.command();
        command.arg("run").stdin(Stdio::null()).stdout(log).stderr(errors);
        self.child = Some(command.spawn().expect("start gpuaas-agent"));
    }

    pub fn pid(&self) -> i32 {
        let id = self.child.as_ref().map(Child::id).expect("the agent runs");
        i32::try_from(id).expect("a pid")
    }

    /// Whether the process that was started still runs.
    pub fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    pub fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(Pid::from_raw(self.pid()), signal).expect("send a signal");
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(&mut self) {
        child_kill(&mut self.child);
    }

    /// SIGTERM, and waits for a clean end; gives the exit code.
    pub async fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        child_exit(&mut self.child, "the agent").await
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("the agent's log:\n{}", self.log());
        }
    }
}

/// Runs to the end with a line on standard input.
fn run_with_input(mut command: Command, line: &str) -> (bool, String) {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("start gpuaas-agent");
    let mut stdin = child.stdin.take().expect("stdin");
    // An agent that refuses at once may have gone already.
    let _ = writeln!(stdin, "{line}");
    drop(stdin);
    let output = child.wait_with_output().expect("gpuaas-agent ends");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
