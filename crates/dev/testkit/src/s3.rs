//! A real S3 service (SeaweedFS) with one bucket, which can be away.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::{eventually_within, free_port, process::child_kill};

/// Starting one takes a few seconds.
const START: Duration = Duration::from_secs(60);

pub struct S3Server {
    port: u16,
    kept: TempDir,
    child: Option<Child>,
}

impl S3Server {
    pub const BUCKET: &str = "gpuaas";
    pub const KEY_ID: &str = "test-key";
    pub const SECRET: &str = "test-secret-0123456789"; // secret-scan: allow

    pub async fn start() -> Self {
        let mut server =
            Self { port: free_port(), kept: tempfile::tempdir().expect("a directory"), child: None };
        server.spawn().await;
        server
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Starts it, again with what it kept.
    // Test processes are started here, and only here.
    #[allow(clippy::disallowed_methods)]
    pub async fn spawn(&mut self) {
        let weed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/venv/bin/weed");
        assert!(weed.exists(), "SeaweedFS is missing: `make test` installs it (scripts/tools.sh seaweedfs)");
        let identities = self.kept.path().join("identities.json");
        let identity = serde_json::json!({ "identities": [{
            "name": "test",
            "credentials": [{ "accessKey": Self::KEY_ID, "secretKey": Self::SECRET }],
            "actions": ["Admin", "Read", "Write", "List"],
        }] });
        std::fs::write(&identities, identity.to_string()).expect("the identities");
        let data = self.kept.path().join("data");
        std::fs::create_dir_all(&data).expect("a directory");
        let log = std::fs::File::create(self.kept.path().join("log")).expect("a log");
        let port = self.port;
        let mut command = Command::new(weed);
        command.args([
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-filer",
            "-s3",
            "-s3.autoCreateBucket",
        ]);
        command.args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false"]);
        command.args(["-master.volumeSizeLimitMB=64", "-master.volumePreallocate=false", "-volume.max=20"]);
        command.arg(format!("-dir={}", data.display())).arg(format!("-s3.config={}", identities.display()));
        command.arg(format!("-s3.port={port}"));
        for part in ["master", "volume", "filer"] {
            command.arg(format!("-{part}.port={}", free_port()));
            command.arg(format!("-{part}.port.grpc={}", free_port()));
        }
        command.arg(format!("-s3.port.grpc={}", free_port()));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        self.child = Some(command.spawn().expect("start SeaweedFS"));
        let listens = || async { tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop) };
        eventually_within(START, "SeaweedFS listens", listens).await;
    }

    pub fn stop(&mut self) {
        child_kill(&mut self.child);
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.stop();
    }
}
