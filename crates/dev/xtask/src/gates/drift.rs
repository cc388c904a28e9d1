//! Generated files are what the generator makes now. One gate for each group of `generate::artefacts`.

use super::{Finding, Gate};
use crate::generate::{self, Group};
use crate::tree::Tree;

pub struct Drift {
    pub group: Group,
}

impl Gate for Drift {
    fn name(&self) -> &'static str {
        self.group.gate_name()
    }

    fn holds(&self) -> &'static str {
        "the committed files are what `cargo xtask generate` writes"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let mut compared = 0;
        for artefact in generate::artefacts().iter().filter(|artefact| artefact.group == self.group) {
            compared += 1;
            let made = match (artefact.make)(tree) {
                Ok(made) => made,
                Err(error) => {
                    found.push(Finding::new(artefact.path, format!("cannot be generated: {error:#}")));
                    continue;
                }
            };
            let committed = if tree.exists(artefact.path) { Some(tree.read(artefact.path)?) } else { None };
            match committed {
                None => found.push(Finding::new(artefact.path, "is missing: run `cargo xtask generate`")),
                Some(committed) if committed != made => {
                    let line = first_difference(&committed, &made);
                    let message = "differs from what is generated: run `cargo xtask generate`";
                    found.push(Finding::at_line(artefact.path, line, message));
                }
                Some(_) => {}
            }
        }
        if compared == 0 {
            found.push(Finding::new(self.name(), "no generated file is listed for this gate"));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        // The good tree is what the generators write, so it is written by them.
        let dir = tempfile::tempdir().unwrap();
        let openapi = crate::sdk::example::openapi().to_string();
        let script = "test \"$2\" = openapi && cat example.json || echo \"the document $2\"\n";
        let mut good = FixtureTree::new(&[
            ("migrations/0001_a.sql", "CREATE TABLE a (id uuid);\n"),
            ("example.json", &openapi),
            ("document.sh", script),
        ]);
        good.write(dir.path());
        let tree = Tree::new(dir.path());
        for artefact in generate::artefacts() {
            generate::write(&tree, &artefact).unwrap();
            good = good.with(artefact.path, tree.read(artefact.path).unwrap());
        }
        let mut examples = super::tests::Examples::good(good);
        for artefact in generate::artefacts().into_iter().filter(|artefact| artefact.group == self.group) {
            let edited = format!("{}\n", tree.read(artefact.path).unwrap());
            examples = examples
                .bad("edited by hand", "differs from what is generated", |tree| {
                    tree.with(artefact.path, edited)
                })
                .bad("not committed", "is missing", |tree| tree.without(artefact.path));
        }
        match self.group {
            Group::Schema => {
                examples.bad("migration after the dump", "differs from what is generated", |tree| {
                    tree.with("migrations/0002_b.sql", "ALTER TABLE a ADD b text;\n")
                })
            }
            // Made from the committed document, not by the program.
            Group::Sdk => examples,
            _ => examples
                .bad("program that fails", "cannot be generated", |tree| tree.with("document.sh", "exit 3\n"))
                .bad("program that says nothing", "printed nothing", |tree| tree.with("document.sh", "")),
        }
    }
}

/// The line, from 1, where two texts begin to differ.
fn first_difference(left: &str, right: &str) -> usize {
    left.lines().zip(right.lines()).take_while(|(left, right)| left == right).count() + 1
}
