//! A policy key that nothing reads promises operators an effect that it does not have.

use std::collections::BTreeSet;

use super::{Finding, Gate};
use crate::rust_tokens::{self, Kind, Token};
use crate::tree::{Tree, is_test_path};

const DEFINITIONS: &str = "crates/base/kernel/src/policy.rs";
/// Keys that something which is being built will read, each with what that is.
const EXCEPTIONS: &str = "gate-exceptions.toml";
const TABLE: &str = "unread_policy_keys";
/// As many as there are. Lower it when one goes; it never rises.
const MOST_EXCEPTIONS: usize = 3;

pub struct PolicyKeys;

impl Gate for PolicyKeys {
    fn name(&self) -> &'static str {
        "policy-keys"
    }

    fn holds(&self) -> &'static str {
        "every policy key is read by the product"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let mut excepted = super::exceptions(tree, EXCEPTIONS, TABLE, MOST_EXCEPTIONS, &mut found)?;
        let definitions = rust_tokens::tokens(&tree.read(DEFINITIONS)?)?;
        let keys = keys(&definitions);
        if keys.is_empty() {
            found.push(Finding::new(DEFINITIONS, "no policy key found"));
        }
        let mut read: BTreeSet<String> = BTreeSet::new();
        let ours = |path: &&String| {
            path.ends_with(".rs")
                && path.contains("/src/")
                && *path != DEFINITIONS
                && !is_test_path(path)
                && !path.starts_with("crates/dev/")
        };
        for path in tree.files()?.iter().filter(ours) {
            let tokens = rust_tokens::tokens(&tree.read(path)?)?;
            for at in (0..tokens.len()).filter(|at| tokens[*at].is("keys") && !tokens[*at].in_test) {
                read.extend(rust_tokens::path_heads(&tokens, at).into_iter().map(str::to_owned));
            }
        }
        for (key, line) in keys {
            match (read.contains(key), excepted.remove(key).is_some()) {
                (true, false) | (false, true) => {}
                (false, false) => {
                    let text = format!("nothing reads {key}: remove it, with what the docs say of it");
                    found.push(Finding::at_line(DEFINITIONS, line, text));
                }
                (true, true) => {
                    found.push(Finding::new(EXCEPTIONS, format!("{key} is read: remove it from {TABLE}")));
                }
            }
        }
        for key in excepted.keys() {
            found.push(Finding::new(
                EXCEPTIONS,
                format!("there is no policy key {key}: remove it from {TABLE}"),
            ));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let definitions = "definitions! {\n    DOORS = \"doors.count\", integer(1, 2, 1), Free, \"How many.\";\n    \
                           LOCKS = \"doors.locks\", choice(Lock::Bolt), Free, \"Which.\";\n}\n";
        let reader = "crates/domains/doors/src/service.rs";
        let code = "fn f() { setting(keys::DOORS) }";
        let exceptions = "[unread_policy_keys]\nLOCKS = \"locks are built next\"\n";
        let tree = FixtureTree::new(&[(DEFINITIONS, definitions), (reader, code), (EXCEPTIONS, exceptions)]);
        super::tests::Examples::good(tree)
            .bad("a key that nothing reads", "policy.rs:2: nothing reads DOORS", |tree| {
                tree.with(reader, "// keys::DOORS\nfn f() {}")
            })
            .bad("a key that only a test reads", "nothing reads DOORS", |tree| {
                tree.with(reader, format!("#[cfg(test)] mod tests {{ {code} }}"))
            })
            .bad("an exception that is not needed", "LOCKS is read", |tree| {
                tree.with(reader, format!("use policy::keys::{{DOORS, LOCKS}}; {code}"))
            })
            .bad("an exception for no key", "there is no policy key BELLS", |tree| {
                tree.with(EXCEPTIONS, format!("{exceptions}BELLS = \"gone\"\n"))
            })
            .bad("no keys at all", "no policy key found", |tree| tree.with(DEFINITIONS, "fn f() {}"))
    }
}

/// The names in `definitions! { NAME = "key", …; … }`, with their lines.
fn keys(tokens: &[Token]) -> Vec<(&str, usize)> {
    let called = |window: &[Token]| {
        window[0].is("definitions") && window[1].kind == Kind::Punct('!') && window[2].kind == Kind::Open('{')
    };
    let Some(start) = tokens.windows(3).position(called) else { return Vec::new() };
    let mut depth = 1_usize;
    let mut keys = Vec::new();
    for at in start + 3..tokens.len() {
        match &tokens[at].kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) if depth == 1 => break,
            Kind::Close(_) => depth -= 1,
            Kind::Ident(name) if depth == 1 => {
                let next = tokens.get(at + 1).map(|token| &token.kind);
                if next == Some(&Kind::Punct('=')) {
                    keys.push((name.as_str(), tokens[at].line));
                }
            }
            _ => {}
        }
    }
    keys
}
