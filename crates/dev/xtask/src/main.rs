//! The gate runner and the generators of committed files.
//!
//! `cargo xtask check` runs every gate over the working tree and exits 1 when any of them has a finding;
//! there is no report-only mode. `cargo xtask generate` writes the files that are derived from code, and the
//! drift gates compare the same list with what is committed.
//!
//! How it works: a gate is one file in `gates/` that implements [`gates::Gate`]: a check over a [`tree::Tree`]
//! (a root directory), and examples: one made-up tree that passes and several that must fail. The trait
//! demands the examples, so a gate that cannot fail does not compile into the test build; one test drives
//! all of them.
//!
//! Promises: a gate never changes the tree; what a gate cannot read or run is a finding, not a pass; programs
//! are started in `exec` only, each with a time limit.

mod breaking;
mod exec;
mod gates;
mod generate;
mod manifest;
mod rust_tokens;
mod sdk;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};

use gates::{Finding, Gate};
use tree::Tree;

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
    /// Write every generated file.
    Generate,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: Args) -> anyhow::Result<bool> {
    match args.command {
        Command::Check { gates } => check(&gates),
        Command::Gates => {
            for gate in gates::registry() {
                println!("{:<22} {}", gate.name(), gate.holds());
            }
            Ok(true)
        }
        Command::Generate => {
            let tree = Tree::new(workspace_root()?);
            for artefact in generate::artefacts() {
                let changed = generate::write(&tree, &artefact)?;
                println!("{:<10} {}", if changed { "written" } else { "unchanged" }, artefact.path);
            }
            Ok(true)
        }
    }
}

fn check(names: &[String]) -> anyhow::Result<bool> {
    let mut chosen = gates::registry();
    if let Some(unknown) = names.iter().find(|name| !chosen.iter().any(|gate| gate.name() == name.as_str())) {
        bail!("there is no gate {unknown:?}; `cargo xtask gates` lists them");
    }
    chosen.retain(|gate| names.is_empty() || names.iter().any(|name| name == gate.name()));

    let tree = Tree::new(workspace_root()?);
    let mut rows = Vec::new();
    for gate in &chosen {
        let start = Instant::now();
        let findings = gates::findings(gate.as_ref(), &tree);
        rows.push((gate, findings, start.elapsed()));
    }
    for (gate, findings, _) in &rows {
        print_findings(gate.as_ref(), findings);
    }
    println!("{:<22} {:<6} {:>8}", "gate", "", "ms");
    for (gate, findings, took) in &rows {
        print_row(gate.name(), findings.is_empty(), *took);
    }
    let failed = rows.iter().filter(|(_, findings, _)| !findings.is_empty()).count();
    if failed > 0 {
        println!("{failed} of {} gates failed", rows.len());
    }
    Ok(failed == 0)
}

fn print_findings(gate: &dyn Gate, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    println!("{}: {}", gate.name(), gate.holds());
    for finding in findings {
        println!("  {finding}");
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
