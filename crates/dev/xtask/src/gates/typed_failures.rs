//! Failures are types. An invariant that does not hold is `Failure::bug`, which is counted and never retried, not an
//! `io::Error` that looks like a full disk; and what happens next is decided by a code, not by the text of a message.

use super::{Finding, Gate};
use crate::rust_tokens::{self, Kind, Token};
use crate::tree::Tree;

/// Where the control plane's code is. Agents and simulators meet real I/O.
const ROOTS: [&str; 4] = ["crates/base/", "crates/platform/", "crates/domains/", "crates/server/"];
/// Fields that hold prose.
const PROSE: [&str; 5] = ["message", "reason", "failure", "detail", "sentence"];
const COMPARISONS: [&str; 4] = ["contains", "starts_with", "strip_prefix", "ends_with"];

pub struct TypedFailures;

impl Gate for TypedFailures {
    fn name(&self) -> &'static str {
        "typed-failures"
    }

    fn holds(&self) -> &'static str {
        "broken invariants are Failure::bug, and no code decides by the text of a message"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let files = tree.files()?;
        let ours = files.iter().filter(|path| {
            path.ends_with(".rs") && path.contains("/src/") && ROOTS.iter().any(|root| path.starts_with(root))
        });
        for path in ours.filter(|path| !path.ends_with("_tests.rs") && !path.ends_with("/tests.rs")) {
            let tokens = match rust_tokens::tokens(&tree.read(path)?) {
                Ok(tokens) => tokens,
                Err(error) => {
                    found.push(Finding::new(path, format!("{error:#}")));
                    continue;
                }
            };
            for at in 0..tokens.len() {
                if tokens[at].in_test {
                    continue;
                }
                if is_made_up_io_error(&tokens[at..]) {
                    let text = "an invariant that does not hold is Failure::bug, not an I/O error";
                    found.push(Finding::at_line(path, tokens[at].line, text));
                }
                if let Some(field) = compares_prose(&tokens[at..]) {
                    let text = format!("{field} is prose: decide by a code");
                    found.push(Finding::at_line(path, tokens[at].line, text));
                }
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let store = "crates/domains/doors/src/store.rs";
        let good = "fn f(e: io::Error) -> bool { e.kind() == io::ErrorKind::NotFound }\n\
                    // io::Error::other and message.contains in a comment\n\
                    #[cfg(test)] mod tests { fn t(m: M) { io::Error::other(1); assert!(m.message.contains(\"x\")); } }\n";
        let agent = "crates/node/agent/src/lib.rs";
        let tree =
            FixtureTree::new(&[(store, good), (agent, "fn f() { io::Error::other(\"it is no file\"); }")]);
        super::tests::Examples::good(tree)
            .bad("made-up I/O error", "store.rs:1: an invariant", |tree| {
                tree.with(store, "fn f() { std::io::Error::other(\"no meter\"); }")
            })
            .bad("decides by a message", "store.rs:1: message is prose", |tree| {
                tree.with(store, "fn f(p: P) -> bool { p.message.contains(\"drain\") }")
            })
            .bad("decides by a reason", "store.rs:1: reason is prose", |tree| {
                tree.with(store, "fn f(reason: &str) -> bool { reason.starts_with(\"cancelled: \") }")
            })
    }
}

/// `Error::other(`.
fn is_made_up_io_error(tokens: &[Token]) -> bool {
    let [error, separator, other, ..] = tokens else { return false };
    error.is("Error") && separator.kind == Kind::PathSep && other.is("other")
}

/// `message.contains(` and the like.
fn compares_prose(tokens: &[Token]) -> Option<&str> {
    let [field, dot, method, open, ..] = tokens else { return None };
    let field = field.ident().filter(|field| PROSE.contains(field))?;
    let compares = dot.kind == Kind::Punct('.')
        && COMPARISONS.iter().any(|name| method.is(name))
        && open.kind == Kind::Open('(');
    compares.then_some(field)
}
