//! The gate runner and the generators of committed files.
//!
//! `cargo xtask check` runs every gate over the working tree and exits 1 when any of them has a finding;
//! there is no report-only mode. `cargo xtask generate` writes the files that are derived from code, and the
//! drift gates compare the same list with what is committed. `cargo xtask test` starts a private PostgreSQL,
//! builds the programs and runs all tests. `cargo xtask mutants` tests the tests of the modules that decide.
//!
//! How it works: a gate is one file in `gates/` that implements [`gates::Gate`]: a check over a [`tree::Tree`]
//! (a root directory), and examples: one made-up tree that passes and several that must fail. The trait
//! demands the examples, so a gate that cannot fail does not compile into the test build; one test drives
//! all of them.
//!
//! Promises: a gate never changes the tree; what a gate cannot read or run is a finding, not a pass; programs
//! are started in `exec` only, each with a time limit; what was started is stopped, also on Ctrl-C and SIGTERM.

mod breaking;
mod documents;
mod exec;
mod fuzzing;
mod gates;
mod generate;
mod interrupt;
mod manifest;
mod mutants;
mod postgres;
mod queries;
mod release;
mod rust_tokens;
mod schema;
mod sdk;
mod sql;
mod testing;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};

use gates::{Finding, Gate};
use postgres::Lease;
use tree::Tree;

/// Of one gate; what is left out mostly has the same cause.
const FINDINGS_SHOWN: usize = 40;

/// Gates and generators of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every gate (or the named ones); exit 1 when any fails.
    Check {
        /// Names of gates, as `cargo xtask gates` lists them. None: all.
        gates: Vec<String>,
    },
    /// List the gates and what each of them holds.
    Gates,
    /// Write every generated file (or those of the named gates).
    Generate {
        /// Names of drift gates, or `sqlx-cache`. None: all.
        gates: Vec<String>,
    },
    /// Make the public API as it is now the one that later changes may not break: part of a release.
    ReleaseContract,
    /// Change the modules that decide, one mutant at a time, and see whether their tests notice.
    Mutants {
        /// Names of modules, as the table at the end lists them. None: all.
        modules: Vec<String>,
    },
    /// Run all tests, on a private PostgreSQL and with the programs built.
    Test {
        /// For the test runner, such as `-p identity` or a part of a test's name.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

/// What `main` reports: 1 is for findings and failed tests, 2 for what could not be done.
fn main() -> ExitCode {
    let outcome = interrupt::watch().and_then(|()| run(Args::parse()));
    if let Some(signal) = interrupt::received() {
        eprintln!("stopped by {signal}");
        return ExitCode::from(128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0)));
    }
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: Args) -> anyhow::Result<u8> {
    match args.command {
        Command::Check { gates } => check(&gates).map(|ok| u8::from(!ok)),
        Command::Gates => {
            for gate in gates::registry() {
                println!("{:<22} {}", gate.name(), gate.holds());
            }
            Ok(0)
        }
        Command::Generate { gates } => generate::run(&Tree::new(workspace_root()?), &gates).map(|()| 0),
        Command::ReleaseContract => release::contract(&Tree::new(workspace_root()?)).map(|()| 0),
        Command::Mutants { modules } => mutants::run(&workspace_root()?, &modules),
        Command::Test { args } => testing::run(&workspace_root()?, &args),
    }
}

fn check(names: &[String]) -> anyhow::Result<bool> {
    let mut chosen = gates::registry();
    if let Some(unknown) = names.iter().find(|name| !chosen.iter().any(|gate| gate.name() == name.as_str())) {
        bail!("there is no gate {unknown:?}; `cargo xtask gates` lists them");
    }
    chosen.retain(|gate| names.is_empty() || names.iter().any(|name| name == gate.name()));

    let tree = Tree::new(workspace_root()?);
    // One server for all the gates that look into a database.
    let _postgres = Lease::take();
    let mut failed = Vec::new();
    println!("{:<22} {:<6} {:>8}", "gate", "", "ms");
    for gate in &chosen {
        let start = Instant::now();
        let findings = gates::findings(gate.as_ref(), &tree);
        print_row(gate.name(), findings.is_empty(), start.elapsed());
        if !findings.is_empty() {
            failed.push((gate, findings));
        }
        if interrupt::received().is_some() {
            return Ok(false);
        }
    }
    println!();
    for (gate, findings) in &failed {
        print_findings(gate.as_ref(), findings);
    }
    match failed.len() {
        0 => println!("all {} gates pass", chosen.len()),
        count => println!("{count} of {} gates failed", chosen.len()),
    }
    Ok(failed.is_empty())
}

fn print_findings(gate: &dyn Gate, findings: &[Finding]) {
    println!("{}: {}", gate.name(), gate.holds());
    for finding in findings.iter().take(FINDINGS_SHOWN) {
        println!("  {finding}");
    }
    if findings.len() > FINDINGS_SHOWN {
        println!("  and {} more", findings.len() - FINDINGS_SHOWN);
    }
    println!();
}

fn print_row(name: &str, ok: bool, took: Duration) {
    println!("{name:<22} {:<6} {:>8}", if ok { "ok" } else { "FAIL" }, took.as_millis());
}

/// The nearest directory upwards whose `Cargo.toml` declares a workspace.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let start = std::env::current_dir().context("read the current directory")?;
    for dir in start.ancestors() {
        let Ok(text) = std::fs::read_to_string(dir.join("Cargo.toml")) else { continue };
        if text.lines().any(|line| line.trim() == "[workspace]") {
            return Ok(dir.to_path_buf());
        }
    }
    bail!("no Cargo workspace found above {}; run this inside the repository", start.display())
}
