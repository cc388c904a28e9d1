//! The PostgreSQL that tests share: the one that `cargo xtask test` started for all test programs, or, under a plain
//! `cargo test`, one of this process's own, which ends with the process.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::{OnceLock, mpsc},
    time::Duration,
};

use pg::{
    Connect,
    builtin::{BuiltinConfig, BuiltinServer, SUPERUSER},
};

/// Tests of one process at once, each with two pools.
const CONNECTIONS: u32 = 400;

/// The socket directory of the server.
pub fn socket_dir() -> &'static str {
    static DIR: OnceLock<String> = OnceLock::new();
    DIR.get_or_init(|| std::env::var("GPUAAS_TEST_PG").unwrap_or_else(|_| own_server()))
}

/// A thread of its own keeps the server's supervisor going for as long as the process lives.
fn own_server() -> String {
    let (started, ready) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let server = start().await;
            started.send(server.socket_dir().to_str().expect("UTF-8").to_owned()).expect("somebody waits");
            std::future::pending::<()>().await;
            drop(server);
        });
    });
    ready.recv_timeout(Duration::from_secs(90)).expect("PostgreSQL did not start; see the message above")
}

async fn start() -> BuiltinServer {
    let dir = tempfile::Builder::new().prefix("gpuaas-test-").tempdir().expect("a directory").keep();
    // As root the server runs as somebody else, who must be able to pass through.
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o711)).expect("open the directory");
    let config = BuiltinConfig {
        data_dir: dir.join("data"),
        bin_dir: None,
        run_as: None,
        durable: false,
        start_timeout: Duration::from_secs(60),
        max_connections: CONNECTIONS,
    };
    let server =
        BuiltinServer::start(config).await.expect("start PostgreSQL (scripts/tools.sh postgres installs it)");
    remove_after_us(&dir);
    pg::bootstrap(&Connect::builtin(server.socket_dir(), 5432, SUPERUSER, "postgres"))
        .await
        .expect("make the roles");
    server
}

/// A test program ends without dropping anything, or is killed. A shell waits for the end of the pipe that this process
/// holds, then stops the server and removes its directory.
#[allow(clippy::disallowed_methods)]
fn remove_after_us(dir: &Path) {
    const SCRIPT: &str = r#"
        cat >/dev/null
        for file in "$1"/data/*/postmaster.pid "$1"/data/postmaster.pid; do
            [ -f "$file" ] || continue
            read -r pid <"$file"
            kill -QUIT "$pid" 2>/dev/null
            for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" 2>/dev/null || break; sleep 0.2; done
        done
        rm -rf -- "$1""#;
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(SCRIPT)
        .arg("sh")
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Its end of the pipe is open, and nobody waits for it, until this process is gone.
    std::mem::forget(shell.spawn().expect("start a shell"));
}
