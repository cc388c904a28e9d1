//! Programs under test.

use std::{net::TcpListener, path::PathBuf};

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port()
}

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
