//! `cargo xtask release-contract`: the public API, the node contract, the events and the SQL statements as they are now
//! become the promise to clients, nodes, consumers, and replicas that still run the release while the next one migrates.
//!
//! The gate `openapi-breaking` compares the first two with these copies, the tests of the crate `events` read
//! messages of the released document, and the gate `released-statements` asks the database for the statements. So they
//! are made when a release is, and at no other time.

use std::fs;

use anyhow::{Context, bail};

use crate::generate::{ASYNCAPI, NODE_OPENAPI, PUBLIC_OPENAPI};
use crate::queries;
use crate::tree::Tree;

pub const RELEASED: &str = "openapi/released/public.json";
pub const RELEASED_NODE: &str = "openapi/released/node.json";

const RELEASED_EVENTS: &str = "openapi/released/events.json";
/// A line for each statement of the programs.
pub const RELEASED_STATEMENTS: &str = "migrations/released/statements.jsonl";

/// Each OpenAPI document, and where its released state is kept.
pub const CONTRACTS: [(&str, &str); 2] = [(PUBLIC_OPENAPI, RELEASED), (NODE_OPENAPI, RELEASED_NODE)];

/// Copies the documents, byte for byte. When one of them is not a document, nothing is replaced.
pub fn contract(tree: &Tree) -> anyhow::Result<()> {
    let documents = CONTRACTS.into_iter().chain([(ASYNCAPI, RELEASED_EVENTS)]);
    for (document, _) in documents.clone() {
        tree.json(document)?;
    }
    let statements = queries::released(tree)?;
    if statements.is_empty() {
        bail!("there are no statements in {}; run cargo xtask generate first", queries::CACHE);
    }
    let contents = documents.map(|(document, released)| anyhow::Ok((released, tree.read(document)?)));
    for file in contents.chain([Ok((RELEASED_STATEMENTS, statements))]) {
        let (released, content) = file?;
        let target = tree.root().join(released);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        }
        fs::write(&target, content).with_context(|| format!("write {released}"))?;
        println!("written    {released}; commit it with the release");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::FixtureTree;

    #[test]
    fn the_released_documents_are_the_present_ones() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::new(dir.path());
        let (public, node) = ("{ \"paths\": {} }\n", "{ \"paths\": { \"/a\": {} } }\n");
        let events = "{ \"channels\": {} }\n";
        let entry = r#"{"query": "SELECT 1", "describe": {"columns": [], "parameters": {"Left": []}, "nullable": []}}"#;
        FixtureTree::new(&[
            (PUBLIC_OPENAPI, public),
            (NODE_OPENAPI, node),
            (ASYNCAPI, events),
            (".sqlx/query-1.json", entry),
        ])
        .write(dir.path());
        contract(&tree).unwrap();
        let statement = r#"{"query":"SELECT 1","parameters":{"Left":[]},"columns":[]}"#;
        assert_eq!(tree.read(RELEASED_STATEMENTS).unwrap(), format!("{statement}\n"));
        assert_eq!(tree.read(RELEASED_EVENTS).unwrap(), events);
        assert_eq!(tree.read(RELEASED).unwrap(), public);
        assert_eq!(tree.read(RELEASED_NODE).unwrap(), node);
    }

    #[test]
    fn when_one_document_is_broken_none_is_released() {
        for broken in [PUBLIC_OPENAPI, NODE_OPENAPI, ASYNCAPI] {
            let dir = tempfile::tempdir().unwrap();
            let tree = Tree::new(dir.path());
            FixtureTree::new(&[
                (PUBLIC_OPENAPI, "{}"),
                (NODE_OPENAPI, "{}"),
                (ASYNCAPI, "{}"),
                (RELEASED, "{ }"),
                (RELEASED_NODE, "{ }"),
            ])
            .with(broken, "{")
            .write(dir.path());
            assert!(contract(&tree).is_err());
            assert_eq!(tree.read(RELEASED).unwrap(), "{ }");
            assert_eq!(tree.read(RELEASED_NODE).unwrap(), "{ }");
        }
    }
}
