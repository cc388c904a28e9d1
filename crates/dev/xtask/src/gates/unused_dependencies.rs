//! Every dependency in a manifest is used by the code it is declared for.
//!
//! A dependency that is needed without being named in code (for a feature it switches on) is listed with a reason:
//! `[package.metadata.kept-dependencies]` `name = "why"`.

use std::collections::BTreeSet;

use toml::Value;

use super::{Finding, Gate};
use crate::manifest::{self, Crate, Section};
use crate::rust_tokens::{self, Token};
use crate::tree::{Tree, is_test_path};

pub struct UnusedDependencies;

impl Gate for UnusedDependencies {
    fn name(&self) -> &'static str {
        "unused-dependencies"
    }

    fn holds(&self) -> &'static str {
        "every dependency is named in the code of its crate, and every workspace dependency by a crate"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let mut used_by_crates = BTreeSet::new();
        for member in manifest::crates(tree)? {
            used_by_crates.extend(member.dependencies().into_iter().map(|dependency| dependency.name));
            check_crate(tree, &member, &mut found)?;
        }
        let root = tree.toml("Cargo.toml")?;
        let shared =
            root.get("workspace").and_then(|table| table.get("dependencies")).and_then(Value::as_table);
        for name in shared.into_iter().flat_map(toml::Table::keys) {
            if !used_by_crates.contains(name) {
                found.push(Finding::new(
                    "Cargo.toml",
                    format!("no crate uses workspace dependency {name}; remove it"),
                ));
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let manifest = "[package]\nname = \"a\"\n\
                        [package.metadata.kept-dependencies]\nkept = \"switches on a feature\"\n\
                        [dependencies]\nab-cd.workspace = true\nkept = \"1\"\nhexed = \"1\"\n\
                        [dev-dependencies]\nchecker = \"1\"\n[build-dependencies]\nmaker = \"1\"\n";
        let tree = FixtureTree::new(&[
            ("Cargo.toml", "[workspace.dependencies]\nab-cd = \"1\"\n"),
            ("crates/base/a/Cargo.toml", manifest),
            ("crates/base/a/build.rs", "fn main() { maker::make() }\n"),
            ("crates/base/a/src/lib.rs", "use ab_cd::X;\n#[serde(with = \"hexed::serde\")]\npub struct Y;\n"),
            ("crates/base/a/tests/t.rs", "use checker::C;\n"),
        ]);
        super::tests::Examples::good(tree)
            .bad("mentioned only in a comment", "ab-cd is never used", |tree| {
                tree.with("crates/base/a/src/lib.rs", "// ab_cd::X hexed::y\n")
            })
            .bad("used only by tests", "ab-cd is used only by tests", |tree| {
                let source = "use hexed::Y;\n#[cfg(test)]\nmod tests {\n    use ab_cd::X;\n}\n";
                tree.with("crates/base/a/src/lib.rs", source)
            })
            .bad("unused in tests", "checker is never used", |tree| tree.without("crates/base/a/tests/t.rs"))
            .bad("unused in the build script", "maker is never used", |tree| {
                tree.with("crates/base/a/build.rs", "fn main() {}\n")
            })
            .bad("kept for nothing", "kept-dependencies lists gone", |tree| {
                tree.with(
                    "crates/base/a/Cargo.toml",
                    "[package]\nname = \"a\"\n[package.metadata.kept-dependencies]\ngone = \"why\"\n",
                )
            })
            .bad("nobody uses it", "no crate uses workspace dependency other", |tree| {
                tree.with("Cargo.toml", "[workspace.dependencies]\nab-cd = \"1\"\nother = \"1\"\n")
            })
    }
}

fn check_crate(tree: &Tree, member: &Crate, found: &mut Vec<Finding>) -> anyhow::Result<()> {
    let at = member.manifest_path();
    let package = member.manifest.get("package");
    let kept = package.and_then(|package| package.get("metadata")?.get("kept-dependencies")?.as_table());
    let kept: BTreeSet<&str> = kept.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let dependencies = member.dependencies();
    for name in &kept {
        if !dependencies.iter().any(|dependency| dependency.name == *name) {
            found.push(Finding::new(&at, format!("kept-dependencies lists {name}, which is no dependency")));
        }
    }

    let build_script = format!("{}/build.rs", member.dir);
    let mut files = Vec::new();
    for path in member.sources(tree)? {
        match rust_tokens::tokens(&tree.read(path)?) {
            Ok(tokens) => files.push((path, tokens)),
            Err(error) => found.push(Finding::new(path, format!("{error:#}"))),
        }
    }
    for dependency in dependencies.iter().filter(|dependency| !kept.contains(dependency.name.as_str())) {
        let ident = dependency.name.replace('-', "_");
        let mut uses = files.iter().filter_map(|(path, tokens)| Some((*path, use_of(tokens, &ident)?)));
        let name = &dependency.name;
        let used = match dependency.section {
            Section::Build => uses.any(|(path, _)| path == build_script),
            Section::Dev => uses.any(|(path, _)| path != build_script),
            Section::Normal => {
                let uses: Vec<_> = uses.filter(|(path, _)| *path != build_script).collect();
                let outside_src = |path: &str| !path.starts_with(&format!("{}/src/", member.dir));
                if !uses.is_empty()
                    && uses
                        .iter()
                        .all(|(path, used)| *used == Use::InTests || is_test_path(path) || outside_src(path))
                {
                    let message = format!("{name} is used only by tests: move it to [dev-dependencies]");
                    found.push(Finding::new(&at, message));
                }
                !uses.is_empty()
            }
        };
        if !used {
            found.push(Finding::new(&at, format!("{name} is never used: remove it")));
        }
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Use {
    InTests,
    InCode,
}

fn use_of(tokens: &[Token], ident: &str) -> Option<Use> {
    let in_attribute = format!("{ident}::");
    let mut outcome = None;
    for (at, token) in tokens.iter().enumerate() {
        let named = rust_tokens::names_crate(tokens, at, ident)
            || token.string().is_some_and(|text| text.starts_with(&in_attribute));
        if named && !token.in_test {
            return Some(Use::InCode);
        }
        if named {
            outcome = Some(Use::InTests);
        }
    }
    outcome
}
