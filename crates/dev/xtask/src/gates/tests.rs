//! One test drives every gate over its own examples.

use std::collections::BTreeSet;

use super::{findings, registry};
use crate::postgres::Lease;
use crate::tree::{FixtureTree, Tree};

/// A tree on which a gate passes, and trees on which it must fail.
pub struct Examples {
    good: FixtureTree,
    bad: Vec<Bad>,
}

struct Bad {
    name: &'static str,
    tree: FixtureTree,
    /// A part of the finding that is expected, so that the gate fails for the right reason.
    says: &'static str,
}

impl Examples {
    pub fn good(good: FixtureTree) -> Examples {
        Examples { good, bad: Vec::new() }
    }

    /// `edit` turns the good tree into a bad one.
    pub fn bad(
        mut self,
        name: &'static str,
        says: &'static str,
        edit: impl FnOnce(FixtureTree) -> FixtureTree,
    ) -> Examples {
        self.bad.push(Bad { name, tree: edit(self.good.clone()), says });
        self
    }
}

fn on_disk(fixture: &FixtureTree) -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    fixture.write(dir.path());
    let tree = Tree::new(dir.path());
    (dir, tree)
}

#[test]
fn every_gate_passes_on_its_good_tree_and_fails_on_each_bad_one() {
    let mut wrong = Vec::new();
    // One server for all the gates that look into a database.
    let _postgres = Lease::take();
    for gate in registry() {
        let examples = gate.examples();
        let (_dir, tree) = on_disk(&examples.good);
        let found = findings(gate.as_ref(), &tree);
        if !found.is_empty() {
            wrong.push(format!("{}: the good tree fails: {found:?}", gate.name()));
        }
        if examples.bad.is_empty() {
            wrong.push(format!("{}: nothing shows that it can fail", gate.name()));
        }
        for bad in examples.bad {
            let (_dir, tree) = on_disk(&bad.tree);
            let found = findings(gate.as_ref(), &tree);
            if !found.iter().any(|finding| finding.to_string().contains(bad.says)) {
                wrong.push(format!(
                    "{}: {:?} should say {:?}, said {found:?}",
                    gate.name(),
                    bad.name,
                    bad.says
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn gate_names_are_unique_and_every_gate_file_is_registered() {
    let gates = registry();
    let names: BTreeSet<_> = gates.iter().map(|gate| gate.name()).collect();
    assert_eq!(names.len(), gates.len());

    // A gate that is written but not listed would never run. The drift gates share one file.
    let source = include_str!("mod.rs");
    let modules = source.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let modules: BTreeSet<String> = modules
        .filter(|name| !matches!(*name, "tests" | "drift"))
        .map(|name| name.replace('_', "-"))
        .collect();
    assert!(!modules.is_empty());
    for module in &modules {
        assert!(names.contains(module.as_str()), "gate {module} is not in the registry");
    }
}

#[test]
fn a_gate_that_cannot_look_does_not_pass() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Tree::new(dir.path().join("not-there"));
    for gate in registry() {
        assert!(!findings(gate.as_ref(), &missing).is_empty(), "{} passes on nothing", gate.name());
    }
}
