//! The one place that starts programs, with real programs.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use node_agent::exec::{ExecError, Run};

use super::eventually;

fn shell(script: &str) -> Run {
    Run::new(Path::new("/bin/sh")).args(["-c", script])
}

fn runs(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

#[test]
fn the_environment_is_ours_alone_and_arguments_are_not_looked_into() {
    let env = Run::new(Path::new("/usr/bin/env")).succeed().unwrap().text();
    let mut lines: Vec<_> = env.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["LANG=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
    let odd = "$(id) `id` ; rm -rf / * 'x' \"y\" \n z";
    let said = Run::new(Path::new("/usr/bin/printf")).args(["%s", odd]).succeed().unwrap();
    assert_eq!(said.text(), odd);
    assert_eq!(shell("pwd").succeed().unwrap().text(), "/\n");
}

#[test]
fn only_absolute_paths_run_and_what_is_missing_is_named() {
    assert!(matches!(Run::new(Path::new("sh")).run(), Err(ExecError::Relative(_))));
    assert!(matches!(Run::new(Path::new("./sh")).run(), Err(ExecError::Relative(_))));
    let missing = Run::new(Path::new("/nonexistent/tool")).run().unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/tool is not installed"), "{missing}");
    assert!(matches!(Run::new(Path::new("/etc/passwd")).run(), Err(ExecError::Start { .. })));
}

#[test]
fn input_is_given_whole_and_output_is_kept_to_its_bound() {
    let input = vec![b'x'; 3_000_000];
    let ran = Run::new(Path::new("/bin/cat")).stdin(input.clone()).output_bytes(4_000_000).succeed().unwrap();
    assert_eq!(ran.stdout, input);
    // A program that does not read its input is no error.
    assert!(Run::new(Path::new("/bin/true")).stdin(input).succeed().is_ok());
    let ran = shell("head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2")
        .output_bytes(1000)
        .succeed()
        .unwrap();
    assert_eq!((ran.stdout.len(), ran.stderr.len(), ran.truncated), (1000, 1000, true));
}

#[test]
fn without_input_a_program_reads_nothing() {
    assert_eq!(Run::new(Path::new("/bin/cat")).succeed().unwrap().stdout, b"");
}

#[test]
fn a_failure_tells_status_and_words_without_secrets() {
    let error = shell("echo 'password=hunter2 is wrong' >&2; exit 3").succeed().unwrap_err().to_string();
    assert!(error.contains("exit status: 3") && error.contains("password=[redacted]"), "{error}");
    assert!(!error.contains("hunter2"));
    assert!(shell("kill -9 $$").succeed().is_err());
}

#[test]
fn when_the_time_is_up_the_program_and_all_it_started_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let script = format!("echo $$ >{0}; sleep 1000 & echo $! >>{0}; wait", pids.display());
    let started = Instant::now();
    let error = shell(&script).timeout(Duration::from_secs(1)).run().unwrap_err();
    assert!(matches!(error, ExecError::TimedOut { seconds: 1, .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10));
    let pids = std::fs::read_to_string(pids).unwrap();
    assert_eq!(pids.lines().count(), 2);
    eventually("both are gone", || pids.lines().all(|pid| !runs(pid)));
}

#[test]
fn what_a_program_leaves_running_is_killed_and_does_not_hold_us_up() {
    let started = Instant::now();
    let ran = shell("sleep 1000 & echo $!").succeed().unwrap();
    let pid = ran.text().trim().to_owned();
    eventually("it is gone", || !runs(&pid));
    // One that has left the group and holds the output open costs a moment, no more.
    let ran = shell("setsid --fork sleep 3; echo started").succeed().unwrap();
    assert!(!ran.text().is_empty() && started.elapsed() < Duration::from_secs(4));
}
