//! `doctor`: what is in order, what is not, and what to do about it.

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use chrono::TimeDelta;
use node_proto::task::CLOCK_TOLERANCE;

use super::{ProgramError, VERSION, ambient, print_line, runtime};
use crate::{
    atomic,
    client::{CallError, Client},
    config::Config,
    identity::{FileStore, Identity, IdentityStore as _},
    journal::{FileJournal, Journal as _, MOST_RECORDS, State},
    transport::{Address, Tcp, TransportError},
};

const REACH_LIMIT: Duration = Duration::from_secs(20);
const RENEWAL: TimeDelta = TimeDelta::minutes(30);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

struct Findings(Vec<(Verdict, &'static str, String)>);

impl Findings {
    fn add(&mut self, verdict: Verdict, what: &'static str, text: impl Into<String>) {
        self.0.push((verdict, what, text.into()));
    }

    fn ok(&mut self, what: &'static str, text: impl Into<String>) {
        self.add(Verdict::Ok, what, text);
    }

    fn warn(&mut self, what: &'static str, text: impl Into<String>) {
        self.add(Verdict::Warn, what, text);
    }

    fn fail(&mut self, what: &'static str, text: impl Into<String>) {
        self.add(Verdict::Fail, what, text);
    }
}

/// Fails when a check failed that keeps the node from working.
pub(super) fn doctor(path: Option<&Path>) -> Result<ExitCode, ProgramError> {
    let mut found = Findings(Vec::new());
    found.ok("version", VERSION);
    match Config::load(path) {
        Err(error) => found.fail("configuration", error.to_string()),
        Ok(config) => {
            found.ok("configuration", format!("state directory {}", config.state_dir.display()));
            machine(&config, &mut found);
            if state_dir(&config, &mut found) {
                let runtime = runtime()?;
                runtime.block_on(Box::pin(journal(&config, &mut found)));
                if let Some(identity) = identity(&config, &mut found) {
                    runtime.block_on(Box::pin(reach(&config, &identity, &mut found)));
                }
            }
        }
    }
    let worst = found.0.iter().map(|(verdict, ..)| *verdict).max().unwrap_or(Verdict::Ok);
    for (verdict, what, text) in &found.0 {
        let mark = match verdict {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        print_line(&format!("{mark}  {what}: {text}"))?;
    }
    Ok(if worst == Verdict::Fail { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn machine(config: &Config, found: &mut Findings) {
    if nix::unistd::geteuid().is_root() {
        found.ok("user", "root");
    } else {
        found.warn("user", "not root: users cannot be created or removed; run the agent as root");
    }
    for (name, path) in
        [("sysfs", &config.roots.sysfs), ("proc", &config.roots.proc), ("dev", &config.roots.dev)]
    {
        match std::fs::read_dir(path) {
            Ok(_) => found.ok(name, path.display().to_string()),
            Err(error) => found.fail(name, format!("{}: {error}; correct roots.{name}", path.display())),
        }
    }
    for (name, path, needed) in config.programs.list() {
        if path.exists() {
            found.ok("program", format!("{name} is {}", path.display()));
        } else if needed {
            found.fail(
                "program",
                format!("{} does not exist; install {name}, or correct programs.{name}", path.display()),
            );
        } else {
            found.warn(
                "program",
                format!("{} does not exist; features that need {name} are disabled", path.display()),
            );
        }
    }
}

fn state_dir(config: &Config, found: &mut Findings) -> bool {
    let dir = &config.state_dir;
    if !dir.exists() {
        found.fail("state", format!("{} does not exist; run `gpuaas-agent enroll`", dir.display()));
        return false;
    }
    let probe = dir.join(".doctor");
    let outcome = atomic::private_dir(dir)
        .and_then(|()| atomic::write(&probe, b"probe"))
        .and_then(|()| atomic::remove(&probe));
    match outcome {
        Ok(()) => found.ok("state", "private and writable"),
        Err(error) => found.fail("state", format!("{}: {error}", dir.display())),
    }
    true
}

async fn journal(config: &Config, found: &mut Findings) {
    let listed = match FileJournal::open(&config.state_dir) {
        Ok(journal) => journal.list().await,
        Err(error) => Err(error),
    };
    match listed {
        Err(error) => found.fail("journal", error.to_string()),
        Ok(records) if records.len() * 10 > MOST_RECORDS * 9 => {
            found
                .warn("journal", format!("{} records: nearly full; new work will be refused", records.len()));
        }
        Ok(records) => {
            let untold = records.iter().filter(|record| !matches!(record.state, State::Told { .. })).count();
            found.ok("journal", format!("{} tasks, {untold} not finished or not reported", records.len()));
        }
    }
}

fn identity(config: &Config, found: &mut Findings) -> Option<Identity> {
    let identity = match FileStore::open(&config.state_dir).and_then(|store| store.load()) {
        Err(error) => {
            found.fail("identity", format!("{error}; get a repair token and run `gpuaas-agent repair`"));
            return None;
        }
        Ok(None) => {
            found.fail(
                "identity",
                "this node has not enrolled; run `gpuaas-agent enroll` with a bootstrap token",
            );
            return None;
        }
        Ok(Some(identity)) => identity,
    };
    found.ok("identity", format!("{} ({})", identity.node_id(), identity.join.hostname));
    let (now, end) = (ambient().now(), identity.expires_at());
    if end <= now {
        found.fail(
            "certificate",
            format!("expired at {end}; get a repair token and run `gpuaas-agent repair`"),
        );
    } else if end - now < RENEWAL {
        found.warn(
            "certificate",
            format!("expires at {end} and should have been renewed; check that the agent runs"),
        );
    } else {
        found.ok("certificate", format!("good until {end}"));
    }
    let (roots, keyset) = (identity.trust.authority_ids().len(), &identity.trust.keyset);
    let text = format!("{roots} authorities, keyset {} with {}", keyset.serial, keyset.signers.len());
    found.ok("trust", text);
    Some(identity)
}

async fn reach(config: &Config, identity: &Identity, found: &mut Findings) {
    let ambient = ambient();
    let url = config.url.as_deref().unwrap_or(&identity.join.url);
    let client = match (Address::parse(url), identity.tls(&ambient)) {
        (Ok(address), Ok(tls)) => Client::new(Arc::new(Tcp), address, ambient, tls, identity.node_id()),
        (Err(error), _) => return found.fail("control plane", error.to_string()),
        (_, Err(error)) => return found.fail("control plane", error.to_string()),
    };
    match tokio::time::timeout(REACH_LIMIT, client.trust()).await {
        Err(_) => found.fail("control plane", format!("{url} does not respond; check network and firewall")),
        Ok(Ok(_)) => found.ok("control plane", format!("{url} responds and trusts this node")),
        Ok(Err(error)) => {
            let what_to_do = match &error {
                CallError::Refused { .. } => "get a repair token and run `gpuaas-agent repair`",
                CallError::Transport(TransportError::NotTrusted { .. }) => {
                    "check the clock and that the address is the control plane's"
                }
                CallError::Transport(_) => "check the address, the network and the firewall",
                _ => "try again later, or ask the operator of the control plane",
            };
            found.fail("control plane", format!("{error}; {what_to_do}"));
        }
    }
    if let Some(offset) = client.clock_offset_ms().map(TimeDelta::milliseconds) {
        let text = format!("{:.1} s off", offset.as_seconds_f64());
        if offset.abs() > CLOCK_TOLERANCE {
            found.fail("clock", format!("{text}; tasks are refused: set up time synchronisation"));
        } else if offset.abs() > CLOCK_TOLERANCE / 5 {
            found.warn("clock", format!("{text}; set up time synchronisation"));
        } else {
            found.ok("clock", text);
        }
    }
}
