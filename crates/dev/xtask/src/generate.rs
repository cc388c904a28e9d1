//! The list of generated files, and what writes each of them.
//!
//! `cargo xtask generate` writes the list in order; for each [`Group`] in it the registry holds a drift gate,
//! which makes the same content again and compares it with the committed file. So a file added here is
//! written, compared and proven to be compared without another line.

use std::fs;

use anyhow::Context;

use crate::sdk;
use crate::tree::Tree;

/// Which drift gate compares the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Sdk,
}

impl Group {
    /// Every group; each has its gate as soon as the list below has a file of it.
    pub const ALL: [Group; 1] = [Group::Sdk];

    pub fn gate_name(self) -> &'static str {
        match self {
            Group::Sdk => "sdk-drift",
        }
    }
}

pub struct Artefact {
    pub group: Group,
    /// Relative to the root.
    pub path: &'static str,
    /// Makes the whole content. It may read files of the tree that come earlier in the list.
    pub make: fn(&Tree) -> anyhow::Result<String>,
}

pub const PUBLIC_OPENAPI: &str = "openapi/public.json";
pub const SDK_SOURCE: &str = "crates/clients/sdk/src/generated.rs";

/// Every generated file, in the order of their dependence: what reads another comes after it.
pub fn artefacts() -> Vec<Artefact> {
    vec![
        // Documents made from code (OpenAPI, AsyncAPI, the error catalog, the role matrix) belong here, above
        // what is made from them.
        Artefact {
            group: Group::Sdk,
            path: SDK_SOURCE,
            make: |tree| sdk::generate_sdk(&tree.json(PUBLIC_OPENAPI)?),
        },
    ]
}

/// Writes the file when its content differs; says whether it did.
pub fn write(tree: &Tree, artefact: &Artefact) -> anyhow::Result<bool> {
    let content = (artefact.make)(tree).with_context(|| format!("generate {}", artefact.path))?;
    let target = tree.root().join(artefact.path);
    if fs::read_to_string(&target).is_ok_and(|committed| committed == content) {
        return Ok(false);
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    }
    fs::write(&target, content).with_context(|| format!("write {}", artefact.path))?;
    Ok(true)
}
