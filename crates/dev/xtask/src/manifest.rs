//! The crates of the workspace, read from their manifests (`crates/<group>/<name>/Cargo.toml`).

use anyhow::Context;
use toml::{Table, Value};

use crate::tree::Tree;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Normal,
    Dev,
    Build,
}

#[derive(Debug, Clone)]
pub struct Dependency {
    pub section: Section,
    /// The name in the manifest, which is the name in the code.
    pub name: String,
    /// The package behind it; differs from `name` when renamed.
    pub package: String,
}

#[derive(Debug)]
pub struct Crate {
    /// `crates/base/kernel`
    pub dir: String,
    /// `base`
    pub group: String,
    /// `kernel`
    pub name: String,
    pub manifest: Table,
}

impl Crate {
    pub fn manifest_path(&self) -> String {
        format!("{}/Cargo.toml", self.dir)
    }

    pub fn dependencies(&self) -> Vec<Dependency> {
        let mut out = Vec::new();
        add_dependencies(&self.manifest, &mut out);
        if let Some(targets) = self.manifest.get("target").and_then(Value::as_table) {
            for target in targets.values().filter_map(Value::as_table) {
                add_dependencies(target, &mut out);
            }
        }
        out
    }

    /// The crate's Rust files, relative to the root.
    pub fn sources<'t>(&self, tree: &'t Tree) -> anyhow::Result<Vec<&'t str>> {
        let prefix = format!("{}/", self.dir);
        Ok(tree
            .files()?
            .iter()
            .map(String::as_str)
            .filter(|path| path.starts_with(&prefix) && path.ends_with(".rs"))
            .collect())
    }
}

pub fn crates(tree: &Tree) -> anyhow::Result<Vec<Crate>> {
    let mut out = Vec::new();
    for path in tree.files()? {
        let parts: Vec<&str> = path.split('/').collect();
        let ["crates", group, folder, "Cargo.toml"] = parts[..] else { continue };
        let manifest = tree.toml(path)?;
        let name = manifest
            .get("package")
            .and_then(|package| package.get("name"))
            .and_then(Value::as_str)
            .with_context(|| format!("{path} has no package.name"))?
            .to_owned();
        out.push(Crate { dir: format!("crates/{group}/{folder}"), group: group.to_owned(), name, manifest });
    }
    Ok(out)
}

fn add_dependencies(table: &Table, out: &mut Vec<Dependency>) {
    let sections = [
        ("dependencies", Section::Normal),
        ("dev-dependencies", Section::Dev),
        ("build-dependencies", Section::Build),
    ];
    for (key, section) in sections {
        let Some(entries) = table.get(key).and_then(Value::as_table) else { continue };
        for (name, entry) in entries {
            let package = entry.get("package").and_then(Value::as_str).unwrap_or(name).to_owned();
            out.push(Dependency { section, name: name.clone(), package });
        }
    }
}
