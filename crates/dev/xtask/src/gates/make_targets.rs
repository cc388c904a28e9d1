//! Every `make` command in the README and CONTRIBUTING exists.

use std::collections::BTreeSet;

use super::{Finding, Gate};
use crate::tree::Tree;

const DOCUMENTS: [&str; 2] = ["README.md", "CONTRIBUTING.md"];

pub struct MakeTargets;

impl Gate for MakeTargets {
    fn name(&self) -> &'static str {
        "make-targets"
    }

    fn holds(&self) -> &'static str {
        "every `make` command in README.md and CONTRIBUTING.md is a target of the Makefile"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let makefile = tree.read("Makefile")?;
        let targets: BTreeSet<&str> = makefile
            .lines()
            .filter(|line| !line.starts_with(['\t', '#', ' ', '.']) && !line.contains(":="))
            .filter_map(|line| line.split_once(':'))
            .flat_map(|(names, _)| names.split_whitespace())
            .collect();
        let mut found = Vec::new();
        for document in DOCUMENTS {
            let text = tree.read(document)?;
            for (line, target) in make_commands(&text) {
                if !targets.contains(target) {
                    found.push(Finding::at_line(
                        document,
                        line,
                        format!("the Makefile has no target {target:?}"),
                    ));
                }
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let tree = FixtureTree::new(&[
            (
                "Makefile",
                "VERSION := 1\n.PHONY: up down\nup: build\n\techo a: b\ndown:\n\techo\nbuild:\n\ttrue\n",
            ),
            (
                "README.md",
                "To make sure it works run `make up`.\n\n```sh\nmake up build # then make coffee\n```\n",
            ),
            ("CONTRIBUTING.md", "`make VERBOSE=1 down` and `make -j2 build`\n"),
        ]);
        super::tests::Examples::good(tree)
            .bad("unknown target in a sentence", "README.md:1: the Makefile has no target \"fly\"", |tree| {
                tree.with("README.md", "Run `make fly`.\n")
            })
            .bad("unknown target in a block", "CONTRIBUTING.md:2: ", |tree| {
                tree.with("CONTRIBUTING.md", "```\n$ make check\n```\n")
            })
            .bad("no Makefile", "read Makefile", |tree| tree.without("Makefile"))
            .bad("no README", "read README.md", |tree| tree.without("README.md"))
    }
}

/// The targets of `make` commands in code spans and code blocks, with their lines.
fn make_commands(text: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let mut in_block = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            out.extend(targets_of(line).map(|target| (index + 1, target)));
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            out.extend(spans.flat_map(targets_of).map(|target| (index + 1, target)));
        }
    }
    out
}

fn targets_of(command: &str) -> impl Iterator<Item = &str> {
    let command = command.split('#').next().unwrap_or_default();
    command.split("&&").flat_map(|part| part.split([';', '|'])).flat_map(|part| {
        let part = part.trim().trim_start_matches("$ ");
        let words = part.strip_prefix("make ").unwrap_or_default();
        words.split_whitespace().filter(|word| !word.starts_with('-') && !word.contains('='))
    })
}
