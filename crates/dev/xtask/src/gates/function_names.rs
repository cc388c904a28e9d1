//! A function is a verb with its object: a name that says nothing by itself cannot be found by grep, and reads only in
//! the file that it was written in.

use super::{Finding, Gate};
use crate::rust_tokens;
use crate::tree::Tree;

/// Names that say nothing without the type before them.
const UNSPECIFIC: [&str; 9] =
    ["of", "over", "again", "said", "told", "tell", "something", "as_it_is", "how_it_is"];

pub struct FunctionNames;

impl Gate for FunctionNames {
    fn name(&self) -> &'static str {
        "function-names"
    }

    fn holds(&self) -> &'static str {
        "no function has a name that cannot be found by grep (of, over, again, said, told, tell)"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        for path in tree.files()?.iter().filter(|path| path.ends_with(".rs")) {
            let tokens = match rust_tokens::tokens(&tree.read(path)?) {
                Ok(tokens) => tokens,
                Err(error) => {
                    found.push(Finding::new(path, format!("{error:#}")));
                    continue;
                }
            };
            for pair in tokens.windows(2) {
                let Some(name) = pair[1].ident().filter(|name| pair[0].is("fn") && UNSPECIFIC.contains(name))
                else {
                    continue;
                };
                let text =
                    format!("fn {name}: name what it does, as a verb with its object (from_row, event_emit)");
                found.push(Finding::at_line(path, pair[1].line, text));
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let source = "crates/domains/doors/src/model.rs";
        let good = "impl Door {\n    // fn of(row)\n    fn from_row(row: Row) -> Door { tell(row) }\n    fn offer() {}\n}\n";
        super::tests::Examples::good(FixtureTree::new(&[(source, good)]))
            .bad("constructor", "model.rs:1: fn of", |tree| {
                tree.with(source, "impl Door { pub const fn of(row: Row) -> Door { Door } }")
            })
            .bad("free function in a test", "tests/t.rs:2: fn told", |tree| {
                tree.with("crates/domains/doors/tests/t.rs", "\nasync fn told() {}\n")
            })
    }
}
