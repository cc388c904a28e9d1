//! A crate has one integration test program: each links the whole crate and what it depends on again. More of them
//! would say nothing that modules of one cannot.

use std::collections::BTreeMap;

use super::{Finding, Gate};
use crate::tree::Tree;

pub struct TestBinaries;

impl Gate for TestBinaries {
    fn name(&self) -> &'static str {
        "test-binaries"
    }

    fn holds(&self) -> &'static str {
        "a crate has one integration test program"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut programs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for path in tree.files()? {
            let Some((name, inside)) = path.split_once("/tests/") else { continue };
            let is_crate = name.starts_with("crates/") && name.split('/').count() == 3;
            let depth = inside.split('/').count();
            let is_program =
                depth == 1 && inside.ends_with(".rs") || depth == 2 && inside.ends_with("/main.rs");
            if is_crate && is_program {
                programs.entry(name).or_default().push(inside);
            }
        }
        let several = programs.into_iter().filter(|(_, programs)| programs.len() > 1);
        let message = |programs: Vec<&str>| {
            format!(
                "has {} test programs ({}): make them modules of one",
                programs.len(),
                programs.join(", ")
            )
        };
        Ok(several.map(|(name, programs)| Finding::new(name, message(programs))).collect())
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let good = FixtureTree::new(&[
            ("crates/base/a/tests/it/main.rs", "mod x;\n"),
            ("crates/base/a/tests/it/x.rs", "\n"),
            ("crates/base/a/tests/it/y/main.rs", "\n"),
            ("crates/base/a/tests/golden/x.txt", "\n"),
            ("crates/base/b/tests/one.rs", "\n"),
            ("crates/base/b/src/tests/main.rs", "\n"),
        ]);
        super::tests::Examples::good(good)
            .bad("a second file", "crates/base/b: has 2 test programs (one.rs, two.rs)", |tree| {
                tree.with("crates/base/b/tests/two.rs", "\n")
            })
            .bad("a second directory", "(it/main.rs, more/main.rs)", |tree| {
                tree.with("crates/base/a/tests/more/main.rs", "\n")
            })
    }
}
