//! A function is a verb with its object: a name that says nothing by itself cannot be found by grep, and reads only in
//! the file that it was written in.

use super::{Finding, Gate};
use crate::rust_tokens;
use crate::tree::Tree;

/// Names that say nothing without the type before them.
const UNSPECIFIC: [&str; 22] = [
    "of",
    "over",
    "again",
    "said",
    "say",
    "told",
    "tell",
    "something",
    "as_it_is",
    "how_it_is",
    "look",
    "looked",
    "hear",
    "heard",
    "held",
    "keep",
    "kept",
    "mend",
    "tend",
    "gone",
    "go",
    "comes",
];
/// Beginnings of names for which the glossary has a word: report or notify, lock or lease, poll, resume, release.
const REPLACED: [&str; 10] = [
    "tell_",
    "told_",
    "hear_",
    "heard_",
    "held_for_",
    "look_after",
    "look_again",
    "look_at",
    "give_back",
    "take_back_",
];

pub struct FunctionNames;

impl Gate for FunctionNames {
    fn name(&self) -> &'static str {
        "function-names"
    }

    fn holds(&self) -> &'static str {
        "no function has a name that cannot be found by grep (of, over, look, heard, held) or that the glossary replaces (tell_)"
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
                let Some(name) = pair[1].ident().filter(|_| pair[0].is("fn")) else { continue };
                let text = if UNSPECIFIC.contains(&name) {
                    format!("fn {name}: name what it does, as a verb with its object (from_row, event_emit)")
                } else if REPLACED.iter().any(|beginning| name.starts_with(beginning)) {
                    format!("fn {name}: use the word of docs/glossary.md (report, notify, lock, lease, poll)")
                } else {
                    continue;
                };
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
            .bad("participle for a locked row", "model.rs:1: fn held", |tree| {
                tree.with(source, "async fn held(tx: &mut WriteTx) -> Door { Door }")
            })
            .bad(
                "another word for report",
                "model.rs:1: fn tell_progress: use the word of docs/glossary.md",
                |tree| tree.with(source, "fn tell_progress() {}"),
            )
            .bad("another word for maintain", "model.rs:1: fn look_after_queues", |tree| {
                tree.with(source, "fn look_after_queues() {}")
            })
    }
}
