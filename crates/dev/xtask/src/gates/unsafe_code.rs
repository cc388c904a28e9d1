//! No unsafe code outside named modules.

use toml::Value;

use super::{Finding, Gate};
use crate::manifest;
use crate::rust_tokens;
use crate::tree::Tree;

/// Files that may say `unsafe`, each with a reason next to it. None so far.
const ALLOWED: [&str; 0] = [];

pub struct UnsafeCode;

impl Gate for UnsafeCode {
    fn name(&self) -> &'static str {
        "unsafe-code"
    }

    fn holds(&self) -> &'static str {
        "every crate is under the workspace lints, which forbid unsafe code, and no source says `unsafe`"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let root = tree.toml("Cargo.toml")?;
        let lint = ["lints", "rust", "unsafe_code"]
            .iter()
            .try_fold(root.get("workspace"), |table, key| table.map(|table| table.get(key)));
        if lint.flatten().and_then(Value::as_str) != Some("forbid") {
            found
                .push(Finding::new("Cargo.toml", "[workspace.lints.rust] must say unsafe_code = \"forbid\""));
        }
        for member in manifest::crates(tree)? {
            let inherits = member.manifest.get("lints").and_then(|lints| lints.get("workspace"));
            if inherits.and_then(Value::as_bool) != Some(true) {
                found.push(Finding::new(member.manifest_path(), "[lints] must say workspace = true"));
            }
        }
        for path in tree.files()?.iter().filter(|path| path.ends_with(".rs")) {
            if ALLOWED.contains(&path.as_str()) {
                continue;
            }
            match rust_tokens::tokens(&tree.read(path)?) {
                Ok(tokens) => {
                    for token in tokens.iter().filter(|token| token.is("unsafe")) {
                        found.push(Finding::at_line(path, token.line, "unsafe code is not allowed here"));
                    }
                }
                Err(error) => found.push(Finding::new(path, format!("{error:#}"))),
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let source = "// unsafe in a comment\npub const A: &str = \"unsafe\";\n";
        let tree = FixtureTree::new(&[
            ("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n"),
            ("crates/base/a/Cargo.toml", "[package]\nname = \"a\"\n[lints]\nworkspace = true\n"),
            ("crates/base/a/src/lib.rs", source),
        ]);
        super::tests::Examples::good(tree)
            .bad("lint only denied", "must say unsafe_code", |tree| {
                tree.with("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"deny\"\n")
            })
            .bad("crate outside the lints", "crates/base/a/Cargo.toml: [lints]", |tree| {
                tree.with("crates/base/a/Cargo.toml", "[package]\nname = \"a\"\n")
            })
            .bad("unsafe function", "lib.rs:2: unsafe", |tree| {
                tree.with("crates/base/a/src/lib.rs", "\npub unsafe fn f() {}\n")
            })
            .bad("unsafe inside a macro", "lib.rs:1: unsafe", |tree| {
                tree.with("crates/base/a/src/lib.rs", "m! { unsafe { f() } }\n")
            })
            .bad("unsafe attribute in a test", "tests/t.rs:1: unsafe", |tree| {
                tree.with("crates/base/a/tests/t.rs", "#[unsafe(no_mangle)]\npub fn f() {}\n")
            })
    }
}
