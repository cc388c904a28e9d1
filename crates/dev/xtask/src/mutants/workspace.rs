//! The generated workspace: one small crate for each module.
//!
//! It has the repository's lock file, profiles and dependency versions, so that what was built for the workspace
//! serves here too where features agree. A module gets those dependencies of its crate that its files name.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use toml::{Table, Value};

use super::modules::Module;
use crate::rust_tokens;
use crate::tree::Tree;

/// Writes the workspace anew: a run that was stopped leaves a mutant in the copy.
pub fn write(tree: &Tree, modules: &[Module], dir: &Path) -> anyhow::Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))?;
    }
    let root = tree.toml("Cargo.toml")?;
    for module in modules {
        let files = files(tree, module)?;
        write_file(&dir.join(module.name).join("Cargo.toml"), &manifest(tree, module, &files)?.to_string())?;
        for (from, to) in &files {
            write_file(&dir.join(module.name).join(to), &tree.read(from)?)?;
        }
        write_file(&dir.join(module.name).join("src/lib.rs"), &root_module(tree, module)?)?;
    }
    write_file(&dir.join("Cargo.toml"), &workspace(tree, &root, modules)?.to_string())?;
    write_file(&dir.join("Cargo.lock"), &tree.read("Cargo.lock")?)
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let parent = path.parent().context("a file has a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// The files that a module is made of: in the repository, and in its own crate.
fn files(tree: &Tree, module: &Module) -> anyhow::Result<Vec<(String, String)>> {
    let src = format!("{}/src/", module.dir);
    let is_named = |file: &str| {
        let below = |folder: &str| file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        module.copied.iter().any(|name| *name == "." || *name == file || below(name))
    };
    let all = tree.files()?.iter().filter_map(|path| path.strip_prefix(&src));
    let sources = all.filter(|file| is_named(file)).map(|file| format!("src/{file}"));
    let tests = module.tests.iter().map(|file| format!("tests/{file}"));
    Ok(sources.chain(tests).map(|file| (format!("{}/{file}", module.dir), file)).collect())
}

/// The module's own root with the copied tests, which name the crate that they were written for.
fn root_module(tree: &Tree, module: &Module) -> anyhow::Result<String> {
    let mut text = match module.root {
        Some(root) => format!("#![allow(dead_code)]\n{root}\n"),
        None => tree.read(&format!("{}/src/lib.rs", module.dir))?,
    };
    let Some((folder, _)) = module.tests.first().and_then(|file| file.rsplit_once('/')) else {
        return Ok(text);
    };
    let original = module.dir.rsplit('/').next().unwrap_or(module.dir).replace('-', "_");
    text += &format!(
        "extern crate self as {original};\n#[cfg(test)] #[path = \"../tests/{folder}\"] mod it {{\n"
    );
    for file in module.tests {
        let name = file.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')?.strip_suffix(".rs"));
        let name = name.with_context(|| format!("{file} is no Rust file in {folder}"))?;
        text += &format!("    mod {name};\n");
    }
    Ok(text + "}\n")
}

/// The packages of the repository and the versions, with absolute paths.
fn workspace(tree: &Tree, root: &Table, modules: &[Module]) -> anyhow::Result<Table> {
    let mut workspace =
        root.get("workspace").and_then(Value::as_table).context("Cargo.toml has no workspace")?.clone();
    let members = modules.iter().map(|module| Value::from(module.name)).collect();
    workspace.insert("members".to_owned(), Value::Array(members));
    workspace.remove("lints");
    if let Some(dependencies) = workspace.get_mut("dependencies").and_then(Value::as_table_mut) {
        for dependency in dependencies.iter_mut().filter_map(|(_, entry)| entry.as_table_mut()) {
            if let Some(path) = dependency.get("path").and_then(Value::as_str).map(PathBuf::from) {
                let path = tree.root().join(path);
                dependency.insert("path".to_owned(), Value::from(path.to_string_lossy().as_ref()));
            }
        }
    }
    let mut out = Table::from_iter([("workspace".to_owned(), Value::Table(workspace))]);
    if let Some(profile) = root.get("profile") {
        out.insert("profile".to_owned(), profile.clone());
    }
    Ok(out)
}

fn manifest(tree: &Tree, module: &Module, files: &[(String, String)]) -> anyhow::Result<Table> {
    let original = tree.toml(&format!("{}/Cargo.toml", module.dir))?;
    let mut sources = Vec::new();
    for (file, _) in files {
        sources.push(rust_tokens::tokens(&tree.read(file)?).with_context(|| format!("read {file}"))?);
    }
    // A variable that has the name of a crate must not make the module wait for that crate's build.
    let is_used = |name: &str| {
        let name = name.replace('-', "_");
        let mut files = sources.iter();
        files.any(|tokens| (0..tokens.len()).any(|at| rust_tokens::names_crate(tokens, at, &name)))
    };
    let mut out: Table = format!(
        "[package]\nname = {:?}\nversion = \"0.0.0\"\nedition.workspace = true\n[lib]\ndoctest = false\n",
        module.name
    )
    .parse()?;
    for section in ["dependencies", "dev-dependencies"] {
        let Some(entries) = original.get(section).and_then(Value::as_table) else { continue };
        let mut used = entries.clone();
        used.retain(|name, _| is_used(name));
        out.insert(section.to_owned(), Value::Table(used));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::FixtureTree;

    const ROOT: &str = "[workspace]\nmembers = [\"crates/*/*\"]\n[workspace.package]\nedition = \"2024\"\n\
        [workspace.dependencies]\nkernel = { path = \"crates/base/kernel\" }\nserde = \"1\"\n[profile.dev]\ndebug = false\n";

    #[test]
    fn a_module_is_built_with_the_dependencies_that_it_names() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        FixtureTree::new(&[
            ("Cargo.toml", ROOT),
            ("Cargo.lock", "version = 4\n"),
            (
                "crates/d/m/Cargo.toml",
                "[package]\nname = \"m\"\n[dependencies]\nkernel.workspace = true\nserde.workspace = true\n",
            ),
            ("crates/d/m/src/lib.rs", "mod model; mod store;"),
            ("crates/d/m/src/model/pure.rs", "use kernel::Code; fn pure(serde: Code) -> Code { serde }"),
            ("crates/d/m/src/store.rs", "use serde::Serialize;"),
            ("crates/d/m/tests/deep/rules.rs", ""),
        ])
        .write(from.path());
        let module = Module {
            name: "pure",
            dir: "crates/d/m",
            root: Some("pub mod model { pub mod pure; }"),
            copied: &["model"],
            tests: &["deep/rules.rs"],
            mutated: &[],
            property_cases: 1,
        };
        write(&Tree::new(from.path()), &[module], to.path()).unwrap();
        let made = Tree::new(to.path());
        assert_eq!(
            made.files().unwrap(),
            [
                "Cargo.lock",
                "Cargo.toml",
                "pure/Cargo.toml",
                "pure/src/lib.rs",
                "pure/src/model/pure.rs",
                "pure/tests/deep/rules.rs"
            ]
        );
        let root = made.read("pure/src/lib.rs").unwrap();
        assert!(root.contains("pub mod model { pub mod pure; }\nextern crate self as m;"), "{root}");
        assert!(root.contains("#[path = \"../tests/deep\"] mod it {\n    mod rules;\n}"), "{root}");
        let dependencies = made.toml("pure/Cargo.toml").unwrap()["dependencies"].as_table().unwrap().clone();
        assert_eq!(dependencies.keys().collect::<Vec<_>>(), ["kernel"]);
        let kernel = made.toml("Cargo.toml").unwrap()["workspace"]["dependencies"]["kernel"]["path"].clone();
        assert_eq!(kernel.as_str().map(Path::new), Some(from.path().join("crates/base/kernel").as_path()));
    }
}
