//! A real mail server that keeps what it is given, and can be away.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{eventually, free_port, process::child_kill};

/// Listens on its port while it is up. Addresses that begin with `later-` are put off once, those with `never-` refused.
pub struct MailServer {
    pub port: u16,
    kept: TempDir,
    child: Option<Child>,
}

impl MailServer {
    /// Nobody listens yet.
    pub fn down() -> Self {
        Self { port: free_port(), kept: tempfile::tempdir().expect("a directory"), child: None }
    }

    pub async fn up() -> Self {
        let mut server = Self::down();
        server.start().await;
        server
    }

    // Test processes are started here, and only here.
    #[allow(clippy::disallowed_methods)]
    pub async fn start(&mut self) {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = own.join("../../../.tools/venv/bin/python");
        assert!(python.exists(), "aiosmtpd is missing: `make test` installs it (scripts/tools.sh aiosmtpd)");
        let mut command = Command::new(python);
        command.arg(own.join("src/mail_sink.py")).arg(self.port.to_string()).arg(self.kept.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.spawn().expect("start the mail server"));
        let port = self.port;
        eventually("the mail server listens", || async {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop)
        })
        .await;
    }

    pub fn stop(&mut self) {
        child_kill(&mut self.child);
    }

    /// What arrived so far, in order: `from`, `to`, `headers`, `text`, `html`.
    pub fn messages(&self) -> Vec<Value> {
        let mut files: Vec<_> = std::fs::read_dir(self.kept.path())
            .expect("what was kept")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .collect();
        files.sort();
        let read = |path| serde_json::from_slice(&std::fs::read(path).expect("a message")).expect("JSON");
        files.into_iter().map(read).collect()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.stop();
    }
}
