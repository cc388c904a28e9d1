//! `cargo xtask test`: everything the tests need, then the tests.
//!
//! One private PostgreSQL serves all test processes (each test clones a database of its own in it); the programs
//! are built first because tests start them as processes; third-party programs come from `scripts/tools.sh`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::exec;
use crate::postgres::{SOCKET_DIR, Server};

/// The tests' own limits (see `.config/nextest.toml`) end long before.
const TEST_LIMIT: Duration = Duration::from_secs(50 * 60);
const BUILD_LIMIT: Duration = Duration::from_secs(45 * 60);
const TOOLS_LIMIT: Duration = Duration::from_secs(20 * 60);
const PROBE_LIMIT: Duration = Duration::from_secs(30);
/// Several tests at once, each with two pools and a server process of its own.
const CONNECTIONS: u32 = 400;

/// Gives the exit code of the first step that failed. With `args` only the tests they choose run.
pub fn run(root: &Path, args: &[String]) -> anyhow::Result<u8> {
    step("third-party programs");
    if exec::show(root, "bash", &["scripts/tools.sh"], &[], TOOLS_LIMIT)? != 0 {
        bail!("the tests need the programs above; nothing was tested");
    }
    step("PostgreSQL");
    let server = Server::start(CONNECTIONS)?;
    // The roles belong to the whole server: made once here, tests that start together cannot race for them.
    server.block_on(async { Ok(pg::bootstrap(&server.connect("postgres")).await?) })?;
    let socket_dir = server.socket_dir().to_str().context("the socket directory is not UTF-8")?.to_owned();
    let environment = [(SOCKET_DIR, socket_dir.as_str())];
    let cargo = |args: &[&str], limit| exec::show(root, "cargo", args, &environment, limit);

    step("programs");
    // With the tests, for the whole workspace: a selection of packages has other features, and would be built twice.
    let build = ["build", "--locked", "--workspace", "--all-targets"];
    let code = cargo(&build, BUILD_LIMIT)?;
    if code != 0 {
        return Ok(code);
    }
    if args.is_empty() {
        step("examples in the documentation");
        let code = cargo(&["test", "--locked", "--workspace", "--doc", "--quiet"], TEST_LIMIT)?;
        if code != 0 {
            return Ok(code);
        }
    }
    step("tests");
    let has_nextest =
        exec::run(root, "cargo", &["nextest", "--version"], PROBE_LIMIT).is_ok_and(|ran| ran.ok);
    let mut command = if has_nextest { vec!["nextest", "run"] } else { vec!["test"] };
    command.push("--locked");
    if !args.iter().any(|arg| arg == "-p" || arg.starts_with("--package")) {
        command.push("--workspace");
    }
    command.extend(args.iter().map(String::as_str));
    if !has_nextest && args.is_empty() {
        // The examples have run already.
        command.push("--all-targets");
    }
    cargo(&command, TEST_LIMIT)
}

fn step(what: &str) {
    println!("── {what}");
}
