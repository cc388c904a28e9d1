//! Rust code is formatted.

use std::time::Duration;

use super::{Finding, Gate};
use crate::exec;
use crate::tree::Tree;

const LIMIT: Duration = Duration::from_secs(120);

pub struct Format;

impl Gate for Format {
    fn name(&self) -> &'static str {
        "format"
    }

    fn holds(&self) -> &'static str {
        "`cargo fmt --all` changes nothing"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let ran =
            exec::run(tree.root(), "cargo", &["fmt", "--all", "--check", "--", "--files-with-diff"], LIMIT)?;
        if ran.ok {
            return Ok(Vec::new());
        }
        let mut found: Vec<Finding> = ran
            .stdout
            .lines()
            .map(|path| {
                let path = path.strip_prefix(&format!("{}/", tree.root().display())).unwrap_or(path);
                Finding::new(path, "is not formatted: run `cargo fmt --all`")
            })
            .collect();
        if found.is_empty() {
            found.push(Finding::new("cargo fmt", ran.stderr.trim()));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let tree = FixtureTree::new(&[
            ("Cargo.toml", "[package]\nname = \"example\"\nversion = \"0.0.0\"\nedition = \"2024\"\n"),
            ("src/lib.rs", "pub fn one() -> u8 {\n    1\n}\n"),
        ]);
        super::tests::Examples::good(tree)
            .bad("unformatted", "src/lib.rs: is not formatted", |tree| {
                tree.with("src/lib.rs", "pub fn one()->u8{1}\n")
            })
            .bad("not Rust", "cargo fmt", |tree| tree.with("src/lib.rs", "pub fn {\n"))
    }
}
