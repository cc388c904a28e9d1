//! The control plane as a real process.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{sys::signal::Signal, unistd::Pid};

use crate::{
    Api, TestDb, free_port,
    process::{child_exit, child_kill},
    program,
};

#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Extra lines of TOML.
    pub config: String,
    /// Extra environment.
    pub env: Vec<(String, String)>,
    /// The roles; all when empty.
    pub roles: String,
}

/// A running `gpuaasd` on free ports, killed when dropped.
pub struct Server {
    pub base: String,
    pub ops: String,
    /// Of the node listener.
    pub node_url: String,
    pub dir: tempfile::TempDir,
    config: PathBuf,
    options: ServerOptions,
    child: Option<Child>,
}

impl Server {
    /// Starts on `db` and waits until it is ready.
    pub async fn start(db: &TestDb) -> Self {
        Self::start_with(db, ServerOptions::default()).await
    }

    pub async fn start_with(db: &TestDb, options: ServerOptions) -> Self {
        let database = format!("[database]\nurl = \"{}\"\n", db.url());
        Self::start_on(&database, options).await
    }

    /// Starts with the given `[database]` section (the built-in server when it is empty).
    pub async fn start_on(database: &str, options: ServerOptions) -> Self {
        let mut server = Self::prepare(database, options);
        server.spawn();
        server.ready().await;
        server
    }

    /// Writes the configuration without starting anything.
    pub fn prepare(database: &str, options: ServerOptions) -> Self {
        let dir = tempfile::Builder::new().prefix("gpuaas-test-").tempdir().expect("a temporary directory");
        // The built-in Postgres runs unprivileged and must be able to pass through.
        let traversable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), traversable).expect("permissions");
        let (port, ops, nodes) = (free_port(), free_port(), free_port());
        let config = dir.path().join("gpuaas.toml");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\nops_listen = \"127.0.0.1:{ops}\"\npublic_url = \"http://127.0.0.1:{port}\"\n\
             data_dir = \"{}\"\n[auth.argon2]\nmemory_kib = 64\niterations = 1\n\
             [node_gateway]\nlisten = \"127.0.0.1:{nodes}\"\n{database}\n{}\n",
            dir.path().join("data").display(),
            options.config,
        );
        std::fs::write(&config, text).expect("write the configuration");
        let (base, ops) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{ops}"));
        let node_url = format!("https://127.0.0.1:{nodes}");
        Self { node_url, base, ops, dir, config, options, child: None }
    }

    // Test processes are started here, and only here.
    #[allow(clippy::disallowed_methods)]
    pub fn spawn(&mut self) {
        let mut command = Command::new(program("gpuaasd"));
        command.arg("--config").arg(&self.config);
        if !self.options.roles.is_empty() {
            command.arg("--roles").arg(&self.options.roles);
        }
        command.arg("run");
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("open the log");
        let errors = log.try_clone().expect("a second handle");
        command.envs(self.options.env.iter().cloned()).stdin(Stdio::null()).stdout(log).stderr(errors);
        self.child = Some(command.spawn().expect("start gpuaasd"));
    }

    pub fn log_path(&self) -> PathBuf {
        self.dir.path().join("gpuaasd.log")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().map(Child::id).expect("the server runs")
    }

    pub async fn ready(&mut self) {
        let url = format!("{}/readyz", self.ops);
        let probe = Api::new(&url, None);
        for _ in 0..2400 {
            if let Some(child) = &mut self.child
                && let Ok(Some(status)) = child.try_wait()
            {
                panic!("gpuaasd ended with {status}:\n{}", self.log());
            }
            if let Ok(response) = probe.request(reqwest::Method::GET, "").send().await
                && response.status().is_success()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("gpuaasd did not become ready:\n{}", self.log());
    }

    pub fn api(&self) -> Api {
        Api::new(&self.base, None)
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).expect("a pid"));
        nix::sys::signal::kill(pid, signal).expect("send a signal");
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(&mut self) {
        child_kill(&mut self.child);
    }

    /// SIGTERM, and waits for a clean end; gives the exit code.
    pub async fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        child_exit(&mut self.child, "gpuaasd").await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            // SIGTERM first, so that a built-in Postgres is not left behind; then, bounded, SIGKILL.
            let Some(mut child) = self.child.take() else { return };
            if let Ok(pid) = i32::try_from(child.id())
                && matches!(child.try_wait(), Ok(None))
            {
                let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            for _ in 0..400 {
                if matches!(child.try_wait(), Ok(Some(_))) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(25));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
