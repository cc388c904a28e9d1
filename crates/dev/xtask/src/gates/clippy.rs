//! No warning from the compiler or clippy, in any target.

use std::time::Duration;

use super::{Finding, Gate};
use crate::exec;
use crate::tree::Tree;

/// A cold build of the whole workspace on a small machine fits.
const LIMIT: Duration = Duration::from_secs(45 * 60);

pub struct Clippy;

impl Gate for Clippy {
    fn name(&self) -> &'static str {
        "clippy"
    }

    fn holds(&self) -> &'static str {
        "clippy has no warning in any target of any crate"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let args = ["clippy", "--workspace", "--all-targets", "--locked", "--message-format=short"];
        let args: Vec<&str> = args.into_iter().chain(["--", "-D", "warnings"]).collect();
        let ran = exec::run(tree.root(), "cargo", &args, LIMIT)?;
        if ran.ok {
            return Ok(Vec::new());
        }
        // `path:line:column: error: message`, once for each target that compiles the file.
        let mut found = Vec::new();
        for line in ran.stderr.lines() {
            let Some((at, message)) = line.split_once(": error").or_else(|| line.split_once(": warning"))
            else {
                continue;
            };
            let finding = Finding::new(at, message.trim_start_matches([':', ' ']));
            if at.contains(".rs:") && !found.contains(&finding) {
                found.push(finding);
            }
        }
        if found.is_empty() {
            found.push(Finding::new("cargo clippy", ran.stderr.trim()));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let tree = FixtureTree::new(&[
            ("Cargo.toml", "[package]\nname = \"example\"\nversion = \"0.0.0\"\nedition = \"2024\"\n"),
            ("Cargo.lock", "version = 4\n\n[[package]]\nname = \"example\"\nversion = \"0.0.0\"\n"),
            ("src/lib.rs", "pub fn one() -> u8 {\n    1\n}\n"),
        ]);
        super::tests::Examples::good(tree)
            .bad("warning", "unused variable", |tree| {
                tree.with("src/lib.rs", "pub fn one() -> u8 {\n    let two = 2;\n    1\n}\n")
            })
            .bad("clippy lint in a test target", "tests/a.rs:3", |tree| {
                tree.with("tests/a.rs", "#[test]\nfn a() {\n    return ();\n}\n")
            })
            .bad("lock file out of date", "--locked", |tree| tree.with("Cargo.lock", "version = 4\n"))
    }
}
