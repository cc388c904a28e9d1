//! Every package we build carries a licence we accept.

use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

use super::{Finding, Gate};
use crate::exec;
use crate::tree::Tree;

const LIMIT: Duration = Duration::from_secs(120);

/// SPDX identifiers we accept: permissive, plus MPL-2.0, whose duty ends at the files of the package itself.
const ALLOWED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Zlib",
];

pub struct Licences;

impl Gate for Licences {
    fn name(&self) -> &'static str {
        "licences"
    }

    fn holds(&self) -> &'static str {
        "every package that is built has a licence on the allow-list"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        // Only what this platform builds. Not `--offline`: cargo also reads manifests of locked packages that no build
        // here needs, and an empty cargo cache does not have them; `--locked` keeps the versions.
        let about = exec::run(tree.root(), "rustc", &["-vV"], LIMIT)?;
        let host = about.stdout.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.context("rustc -vV names no host")?;
        let args = ["metadata", "--locked", "--format-version=1", "--filter-platform", host];
        let ran = exec::run(tree.root(), "cargo", &args, LIMIT)?;
        if !ran.ok {
            bail!("cargo metadata failed: {}", ran.stderr.trim());
        }
        let metadata: Value = serde_json::from_str(&ran.stdout).context("read cargo metadata")?;
        let packages =
            metadata.get("packages").and_then(Value::as_array).context("cargo metadata has no packages")?;
        Ok(packages.iter().filter_map(check_package).collect())
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let dependency = |licence: &str| {
            format!("[package]\nname = \"other\"\nversion = \"0.0.0\"\nedition = \"2024\"\n{licence}\n")
        };
        let manifest = "[package]\nname = \"example\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
                        license = \"Apache-2.0\"\n[dependencies]\nother = { path = \"other\" }\n";
        let lock = "version = 4\n\n[[package]]\nname = \"example\"\nversion = \"0.0.0\"\n\
                    dependencies = [\n \"other\",\n]\n\n[[package]]\nname = \"other\"\nversion = \"0.0.0\"\n";
        let tree = FixtureTree::new(&[
            ("Cargo.toml", manifest),
            ("Cargo.lock", lock),
            ("src/lib.rs", ""),
            ("other/Cargo.toml", &dependency("license = \"MIT/GPL-3.0-only\"")),
            ("other/src/lib.rs", ""),
        ]);
        super::tests::Examples::good(tree)
            .bad("copyleft", "other 0.0.0: licence GPL-3.0-only", |tree| {
                tree.with("other/Cargo.toml", dependency("license = \"GPL-3.0-only\""))
            })
            .bad("one half of an AND", "MIT AND GPL-3.0-only", |tree| {
                tree.with("other/Cargo.toml", dependency("license = \"MIT AND GPL-3.0-only\""))
            })
            .bad("no licence", "other 0.0.0: names no licence", |tree| {
                tree.with("other/Cargo.toml", dependency(""))
            })
            .bad("lock file missing", "cargo metadata failed", |tree| tree.without("Cargo.lock"))
    }
}

fn check_package(package: &Value) -> Option<Finding> {
    let text = |key: &str| package.get(key).and_then(Value::as_str);
    let at = format!("{} {}", text("name").unwrap_or("?"), text("version").unwrap_or("?"));
    match text("license") {
        None => Some(Finding::new(at, "names no licence; use another package")),
        Some(licence) if accepts(licence) => None,
        Some(licence) => Some(Finding::new(at, format!("licence {licence} is not on the allow-list"))),
    }
}

/// Whether an SPDX expression can be met with allowed licences. `/` is the old way to write OR.
fn accepts(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any_of(&words, &mut at, 0) && at == words.len()
}

/// More nesting than any real expression has.
const DEPTH_LIMIT: usize = 16;

fn any_of(words: &[&str], at: &mut usize, depth: usize) -> bool {
    let mut ok = all_of(words, at, depth);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        ok |= all_of(words, at, depth);
    }
    ok
}

fn all_of(words: &[&str], at: &mut usize, depth: usize) -> bool {
    let mut ok = one(words, at, depth);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        ok &= one(words, at, depth);
    }
    ok
}

fn one(words: &[&str], at: &mut usize, depth: usize) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        if depth == DEPTH_LIMIT {
            return false;
        }
        let ok = any_of(words, at, depth + 1);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return ok && closed;
    }
    if words.get(*at) == Some(&"WITH") {
        let whole = format!("{word} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
        return ALLOWED.contains(&whole.as_str());
    }
    ALLOWED.contains(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_follow_and_or_and_brackets() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0-only",
            "GPL-3.0-only OR MIT",
            "Apache-2.0 / MIT",
            "ISC AND (Apache-2.0 OR GPL-2.0-only)",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
        ] {
            assert!(accepts(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "(MIT OR ISC) AND GPL-3.0-only",
            "MIT WITH Some-exception",
            "(MIT",
            "MIT)",
            "MIT ISC",
        ] {
            assert!(!accepts(bad), "{bad}");
        }
    }
}
