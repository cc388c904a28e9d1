//! Documents that the server program prints about itself: its API, events, errors, roles, lifecycles, metrics and policies.
//!
//! The program is built for it. Where the whole workspace was built from the same sources just before (`.ci/run`),
//! `GPUAAS_PROGRAMS` names the directory of its programs: a build of this one alone has other features of shared
//! dependencies, and would compile most of the workspace a second time.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::exec;
use crate::tree::Tree;

/// Names the directory of programs that are built already.
const BUILT_PROGRAMS: &str = "GPUAAS_PROGRAMS";

/// A cold build of the server program on a small machine fits.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// The command that prints documents.
fn command(built_programs: Option<&str>) -> Vec<String> {
    match built_programs {
        Some(dir) => vec![format!("{dir}/gpuaasd")],
        None => {
            ["cargo", "run", "--quiet", "--locked", "--package", "gpuaasd", "--"].map(String::from).to_vec()
        }
    }
}

pub fn document(tree: &Tree, name: &str) -> anyhow::Result<String> {
    let command = if cfg!(test) {
        // The tests' trees have no server program but a script that prints like one.
        vec!["sh".to_owned(), "document.sh".to_owned()]
    } else {
        command(std::env::var(BUILT_PROGRAMS).ok().as_deref())
    };
    let Some((program, args)) = command.split_first() else { bail!("no program prints documents") };
    if args.is_empty() {
        newer_source_refuse(tree, Path::new(program))?;
    }
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["document", name]).collect();
    let ran = exec::run(tree.root(), program, &args, LIMIT)?;
    if !ran.ok {
        bail!("{program} {} failed: {}", args.join(" "), ran.stderr.trim());
    }
    if ran.stdout.trim().is_empty() {
        bail!("{program} {} printed nothing", args.join(" "));
    }
    Ok(format!("{}\n", ran.stdout.trim_end()))
}

/// A program that was built before a source changed would print what the sources were.
fn newer_source_refuse(tree: &Tree, program: &Path) -> anyhow::Result<()> {
    let changed_at = |path: &Path| {
        fs::metadata(path)
            .and_then(|file| file.modified())
            .with_context(|| format!("look at {}", path.display()))
    };
    let built_at = changed_at(program)?;
    for path in tree.files()?.iter().filter(|path| path.ends_with(".rs") || path.ends_with(".toml")) {
        if changed_at(&tree.root().join(path))? > built_at {
            bail!(
                "{path} changed after {} was built; build again, or unset {BUILT_PROGRAMS}",
                program.display()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::FixtureTree;

    #[test]
    fn a_program_that_is_older_than_a_source_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        FixtureTree::new(&[("crates/base/a/src/lib.rs", "")]).write(dir.path());
        let source = dir.path().join("crates/base/a/src/lib.rs");
        let program = dir.path().join("program");
        fs::copy(&source, &program).unwrap();
        let set = |path: &Path, seconds| {
            let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        };
        let refused = |built, changed| {
            set(&program, built);
            set(&source, changed);
            newer_source_refuse(&Tree::new(dir.path()), &program).is_err()
        };
        assert!(refused(100, 200));
        assert!(!refused(200, 100));
    }

    #[test]
    fn the_program_is_built_unless_built_programs_are_named() {
        assert_eq!(command(Some("target/debug")), ["target/debug/gpuaasd"]);
        assert_eq!(command(None)[..2], ["cargo", "run"]);
    }
}
