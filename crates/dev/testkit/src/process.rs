//! Programs under test.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::Child,
    sync::{
        Mutex,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use crate::eventually_within;

/// A port that nobody listens on, and that no other test will be given while this process runs.
pub fn free_port() -> u16 {
    // Below what the system hands out for outgoing connections: such a port cannot be taken by somebody's connection
    // between here and the start of whoever will listen on it.
    const PORTS: std::ops::Range<u16> = 12_000..32_000;
    let dir = std::env::temp_dir().join("gpuaas-test-ports");
    std::fs::create_dir_all(&dir).expect("the directory of port locks");
    let first = usize::from(NEXT_PORT.fetch_add(1, Ordering::Relaxed)) + std::process::id() as usize * 97;
    let span = usize::from(PORTS.end - PORTS.start);
    (0..span)
        .find_map(|step| {
            let port = PORTS.start + u16::try_from((first + step) % span).ok()?;
            let file = std::fs::File::create(dir.join(port.to_string())).ok()?;
            // Held until this process ends, so that no two test processes choose the same.
            let lock = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).ok()?;
            TcpListener::bind(("127.0.0.1", port)).ok()?;
            PORT_LOCKS.lock().expect("port locks").push(lock);
            Some(port)
        })
        .expect("a free port")
}

static NEXT_PORT: AtomicU16 = AtomicU16::new(0);
static PORT_LOCKS: Mutex<Vec<nix::fcntl::Flock<std::fs::File>>> = Mutex::new(Vec::new());

/// The path of one of our own programs, built by `cargo xtask test` beside the tests.
pub fn program(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    let dir = exe.parent().and_then(|deps| deps.parent()).expect("target directory");
    let path = dir.join(name);
    assert!(
        path.exists(),
        "{name} is not built: run tests with `cargo xtask test`, which builds the programs first"
    );
    path
}

/// kill -9, and waits until it is gone.
pub(crate) fn child_kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Waits for the end of a process that was told to stop; gives its exit code.
pub(crate) async fn child_exit(child: &mut Option<Child>, name: &str) -> Option<i32> {
    let mut child = child.take()?;
    let status = eventually_within(Duration::from_secs(40), &format!("{name} stops"), || {
        let status = child.try_wait().expect("wait for a process");
        async move { status }
    })
    .await;
    status.code()
}

/// The HTTP client of tests: it waits a minute at most, follows no redirects, and makes a connection per request (one
/// that idles may be closed by the server just when the next request goes out).
pub fn http_client() -> reqwest::ClientBuilder {
    // The second call finds it installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    reqwest::Client::builder()
        .timeout(std::time::Duration::from_secs(60))
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(0)
}
