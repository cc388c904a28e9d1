//! `cargo xtask test`: everything the tests need, then the tests.
//!
//! One private PostgreSQL serves all test processes (each test clones a database of its own in it); the programs
//! are built first because tests start them as processes; third-party programs come from `scripts/tools.sh`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::exec;
use crate::fuzzing;
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
    let filter = if args.is_empty() && has_nextest { fuzzing::filter(root) } else { None };
    if let Some(filter) = &filter {
        command.extend(["-E", filter]);
    }
    if !has_nextest && args.is_empty() {
        // The examples have run already.
        command.push("--all-targets");
    }
    let code = cargo(&command, TEST_LIMIT)?;
    if has_nextest {
        print_slowest(root);
    }
    Ok(code)
}

/// Where the time of the tests goes.
fn print_slowest(root: &Path) {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let Ok(report) = std::fs::read_to_string(target.join("nextest/default/junit.xml")) else { return };
    step("slowest tests");
    for (seconds, name) in slowest(&report) {
        println!("{seconds:>8.1} s  {name}");
    }
}

/// The slowest test cases of a JUnit report, slowest first.
fn slowest(report: &str) -> Vec<(f64, String)> {
    const MOST: usize = 10;
    let attribute = |case: &str, name: &str| -> Option<String> {
        let (_, rest) = case.split_once(&format!(" {name}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let case = |case: &str| {
        let seconds: f64 = attribute(case, "time")?.parse().ok()?;
        Some((seconds, format!("{} {}", attribute(case, "classname")?, attribute(case, "name")?)))
    };
    let mut cases: Vec<_> = report.split("<testcase").skip(1).filter_map(case).collect();
    cases.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    cases.truncate(MOST);
    cases
}

fn step(what: &str) {
    println!("── {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_tests_come_first() {
        let case =
            |n: u32| format!("<testcase name=\"t{n}\" classname=\"a::b\" timestamp=\"x\" time=\"{n}.5\"/>");
        let report: String = (0..20).map(case).collect();
        let found = slowest(&format!(
            "<testsuites time=\"99\"><testsuite time=\"98\">{report}</testsuite></testsuites>"
        ));
        assert_eq!(found.len(), 10);
        assert_eq!(found[0], (19.5, "a::b t19".to_owned()));
    }
}
