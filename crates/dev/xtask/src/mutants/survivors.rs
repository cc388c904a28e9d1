//! The committed list of mutants that no test catches: it may only shrink.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::modules::Module;
use super::outcomes::Missed;
use crate::tree::Tree;

const LIST: &str = "mutants-survivors.toml";
/// How many entries the list has. Lower it with every entry that is removed and never raise it: a new survivor gets a
/// test, or the code is changed so that the mutant does not exist.
const MAX_ENTRIES: usize = 1;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survivor {
    /// The source file, from the root of the repository.
    pub file: String,
    pub mutant: String,
    /// Why no test catches it: mostly, that the change makes no difference.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    survivor: Vec<Survivor>,
}

pub fn read(tree: &Tree) -> anyhow::Result<Vec<Survivor>> {
    parse(&tree.read(LIST)?, MAX_ENTRIES)
}

fn parse(text: &str, max_entries: usize) -> anyhow::Result<Vec<Survivor>> {
    let list: List = toml::from_str(text).with_context(|| format!("parse {LIST}"))?;
    let entries = list.survivor.len();
    ensure!(
        entries <= max_entries,
        "{LIST} has {entries} entries and may only shrink from {max_entries}: write a test that catches the mutant"
    );
    for entry in &list.survivor {
        ensure!(
            !entry.why.trim().is_empty(),
            "{LIST}: why does nothing catch {} in {}?",
            entry.mutant,
            entry.file
        );
    }
    Ok(list.survivor)
}

/// What is wrong with the list, given what survived in a module. One change can stand several times in a function, so
/// equal entries are counted.
pub fn compare(module: &Module, missed: &[Missed], known: &[Survivor]) -> Vec<String> {
    let mut left: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for entry in known.iter().filter(|entry| is_in(module, &entry.file)) {
        *left.entry((entry.file.clone(), &entry.mutant)).or_default() += 1;
    }
    let mut found = Vec::new();
    for mutant in missed {
        let file = format!("{}/src/{}", module.dir, mutant.file);
        match left.get_mut(&(file.clone(), mutant.mutant.as_str())) {
            Some(count) if *count > 0 => *count -= 1,
            _ => found.push(format!("{file}:{}: no test catches: {}", mutant.line, mutant.mutant)),
        }
    }
    for ((file, mutant), count) in left.into_iter().filter(|(_, count)| *count > 0) {
        found.push(format!("{LIST}: is caught now, remove {count} of: {file}: {mutant}"));
    }
    found
}

/// Whether the module's mutants include those of a file.
fn is_in(module: &Module, path: &str) -> bool {
    let Some(file) = path.strip_prefix(module.dir).and_then(|rest| rest.strip_prefix("/src/")) else {
        return false;
    };
    module.mutated.iter().any(|pattern| match pattern.strip_suffix("*.rs") {
        Some(folder) => {
            file.strip_prefix(folder).is_some_and(|name| !name.contains('/') && name.ends_with(".rs"))
        }
        None => file == *pattern,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::modules::MODULES;
    use super::*;

    const MODULE: Module = Module {
        name: "m",
        dir: "crates/a/m",
        root: None,
        copied: &["."],
        tests: &[],
        mutated: &["one.rs", "deep/*.rs"],
        property_cases: 1,
    };

    fn missed(file: &str) -> Missed {
        Missed { file: file.to_owned(), mutant: "replace < with <=".to_owned(), line: 3 }
    }

    fn known(file: &str) -> Survivor {
        Survivor { file: file.to_owned(), mutant: "replace < with <=".to_owned(), why: "equal".to_owned() }
    }

    #[test]
    fn a_new_survivor_and_a_caught_entry_are_both_wrong() {
        let entry = known("crates/a/m/src/one.rs");
        assert!(compare(&MODULE, &[missed("one.rs")], std::slice::from_ref(&entry)).is_empty());
        assert_eq!(compare(&MODULE, &[missed("one.rs")], &[]).len(), 1);
        assert_eq!(compare(&MODULE, &[], std::slice::from_ref(&entry)).len(), 1);
        // Twice in a function is two entries.
        assert_eq!(compare(&MODULE, &[missed("one.rs"), missed("one.rs")], &[entry]).len(), 1);
    }

    #[test]
    fn entries_of_other_modules_are_not_judged() {
        let others =
            ["crates/a/m/src/two.rs", "crates/a/m/src/deep/er/x.rs", "crates/b/m/src/one.rs"].map(known);
        assert!(compare(&MODULE, &[], &others).is_empty());
        assert_eq!(compare(&MODULE, &[], &[known("crates/a/m/src/deep/x.rs")]).len(), 1);
    }

    fn entries(count: usize, why: &str) -> String {
        format!("[[survivor]]\nfile = \"a.rs\"\nmutant = \"replace < with <=\"\nwhy = {why:?}\n")
            .repeat(count)
    }

    #[test]
    fn a_list_that_grew_or_gives_no_reason_is_refused() {
        assert_eq!(parse(&entries(2, "equal"), 2).unwrap().len(), 2);
        assert!(parse(&entries(3, "equal"), 2).unwrap_err().to_string().contains("may only shrink"));
        assert!(parse(&entries(1, " "), 2).is_err());
    }

    #[test]
    fn the_limit_is_lowered_with_the_list() {
        assert_eq!(committed().len(), MAX_ENTRIES, "lower MAX_ENTRIES to the length of {LIST}");
    }

    #[test]
    fn every_entry_belongs_to_one_module() {
        let tree = repository();
        for entry in committed() {
            assert!(tree.exists(&entry.file), "{}", entry.file);
            let owners = MODULES.iter().filter(|module| is_in(module, &entry.file)).count();
            assert_eq!(owners, 1, "{}", entry.file);
        }
    }

    fn repository() -> Tree {
        Tree::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."))
    }

    fn committed() -> Vec<Survivor> {
        read(&repository()).unwrap()
    }
}
