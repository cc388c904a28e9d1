//! `cargo xtask release-contract`: the public API as it is now becomes the promise to clients.
//!
//! The gate `openapi-breaking` compares with this copy, so it is made when a release is, and at no other time.

use std::fs;

use anyhow::Context;

use crate::generate::PUBLIC_OPENAPI;
use crate::tree::Tree;

pub const RELEASED: &str = "openapi/released/public.json";

/// Copies the document, byte for byte. What is not a document replaces nothing.
pub fn contract(tree: &Tree) -> anyhow::Result<()> {
    tree.json(PUBLIC_OPENAPI)?;
    let content = tree.read(PUBLIC_OPENAPI)?;
    let target = tree.root().join(RELEASED);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    }
    fs::write(&target, content).with_context(|| format!("write {RELEASED}"))?;
    println!("written    {RELEASED}; commit it with the release");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::FixtureTree;

    #[test]
    fn the_released_document_is_the_present_one() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::new(dir.path());
        FixtureTree::new(&[(PUBLIC_OPENAPI, "{ \"paths\": {} }\n")]).write(dir.path());
        contract(&tree).unwrap();
        assert_eq!(tree.read(RELEASED).unwrap(), "{ \"paths\": {} }\n");
    }

    #[test]
    fn a_broken_document_is_not_released() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::new(dir.path());
        FixtureTree::new(&[(PUBLIC_OPENAPI, "{"), (RELEASED, "{}")]).write(dir.path());
        assert!(contract(&tree).is_err());
        assert_eq!(tree.read(RELEASED).unwrap(), "{}");
    }
}
