//! `cargo xtask mutants`: mutation testing of the modules that decide.
//!
//! A mutant is the code with one change (`<` for `<=`, a function that returns nothing). A mutant that every test
//! passes is code that no test holds. cargo-mutants makes and tests them, one build and one test run each; a domain
//! crate takes far too long for that. So each module is copied with what it needs into a small crate of its own below
//! `target/mutants` ([`workspace`]), which builds in about a second, and is tested by its own unit and property
//! tests: what catches a mutant stands beside the code.
//!
//! What survives is named in `mutants-survivors.toml`, each with the reason, and the list may only shrink
//! ([`survivors`]). This is no gate: it takes half an hour, and is run when a module that decides was changed.

mod modules;
mod outcomes;
mod survivors;
mod workspace;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::{exec, tree::Tree};
use modules::{MODULES, Module};
use outcomes::Outcomes;

const PROGRAM: &str = ".tools/cargo/bin/cargo-mutants";
/// Of all modules together, with room for a machine that is slower than those that it was measured on.
const LIMIT: Duration = Duration::from_secs(60 * 60);
/// A mutant that loops for ever is caught by this; the unit tests of a module take a second or two.
const TEST_LIMIT_SECONDS: &str = "30";
/// Of the mutants that build, how many tests must catch, in each module.
const CAUGHT_PERCENT: usize = 95;

/// Tests the mutants of the named modules; of all when none is named. Gives 1 when the list of survivors is not right.
pub fn run(root: &Path, names: &[String]) -> anyhow::Result<u8> {
    if let Some(unknown) = names.iter().find(|name| !MODULES.iter().any(|module| module.name == **name)) {
        let known: Vec<&str> = MODULES.iter().map(|module| module.name).collect();
        bail!("there is no module {unknown:?}; choose from {}", known.join(", "));
    }
    let program = root.join(PROGRAM);
    if !program.exists() {
        bail!("{PROGRAM} is missing; run scripts/tools.sh mutants");
    }
    let tree = Tree::new(root);
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let dir = target.join("mutants");
    workspace::write(&tree, MODULES, &dir)?;
    let known = survivors::read(&tree)?;

    let chosen: Vec<&Module> = MODULES
        .iter()
        .filter(|module| names.is_empty() || names.iter().any(|name| name == module.name))
        .collect();
    let (mut rows, mut findings) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + LIMIT;
    for (index, module) in chosen.iter().enumerate() {
        println!("\n[{} of {}] {}", index + 1, chosen.len(), module.name);
        let start = Instant::now();
        let outcomes = test(&program, &dir, &target, module, deadline.saturating_duration_since(start))?;
        findings.extend(survivors::compare(module, &outcomes.missed, &known));
        if outcomes.caught_percent() < CAUGHT_PERCENT {
            let text = format!(
                "{}: {} % caught, the limit is {CAUGHT_PERCENT} %",
                module.name,
                outcomes.caught_percent()
            );
            findings.push(text);
        }
        rows.push(outcomes.row(module.name, start.elapsed()));
    }
    println!("\n{}", outcomes::HEADER);
    rows.iter().for_each(|row| println!("{row}"));
    findings.iter().for_each(|finding| println!("\n{finding}"));
    Ok(u8::from(!findings.is_empty()))
}

fn test(
    program: &Path,
    dir: &Path,
    target: &Path,
    module: &Module,
    limit: Duration,
) -> anyhow::Result<Outcomes> {
    let output = target.join("mutants-out").join(module.name);
    // What an earlier run left must not be read as the result of this one.
    if output.exists() {
        fs::remove_dir_all(&output).with_context(|| format!("remove {}", output.display()))?;
    }
    fs::create_dir_all(&output).with_context(|| format!("make {}", output.display()))?;
    let files: Vec<String> =
        module.mutated.iter().map(|file| format!("{}/src/{file}", module.name)).collect();
    let (dir_text, output_text) = (path_text(dir)?, path_text(&output)?);
    let mut args = vec!["mutants", "--dir", dir_text, "--output", output_text, "--package", module.name];
    args.extend(["--in-place", "--no-shuffle", "--colors", "never", "--timeout", TEST_LIMIT_SECONDS]);
    files.iter().for_each(|file| args.extend(["--file", file]));
    args.extend(["--", "--lib", "--offline"]);
    let environment = [
        ("CARGO_TARGET_DIR", path_text(target)?),
        // Nobody debugs a mutant or reads the smallest input that catches it: both only cost time.
        ("CARGO_PROFILE_DEV_DEBUG", "false"),
        ("PROPTEST_MAX_SHRINK_ITERS", "0"),
        ("PROPTEST_CASES", &module.property_cases.to_string()),
    ];
    // Its exit code says whether a mutant survived, which the list of survivors decides here.
    exec::show(dir, path_text(program)?, &args, &environment, limit)?;
    outcomes::read(&output.join("mutants.out/outcomes.json"))
        .with_context(|| format!("the mutants of {} were not tested; see above", module.name))
}

fn path_text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
