//! The list of generated files, and what writes each of them.
//!
//! `cargo xtask generate` writes the list in order; for each [`Group`] in it the registry holds a drift gate,
//! which makes the same content again and compares it with the committed file. So a file added here is
//! written, compared and proven to be compared without another line.

use std::fs;

use anyhow::{Context, bail};

use crate::documents::document;
use crate::postgres::Lease;
use crate::queries;
use crate::schema::{self, REVISION, SCHEMA_DUMP};
use crate::sdk;
use crate::tree::Tree;

const QUERY_CACHE: &str = "sqlx-cache";

/// Which drift gate compares the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Schema,
    Openapi,
    Asyncapi,
    Docs,
    Sdk,
}

impl Group {
    /// Every group; each has its gate.
    pub const ALL: [Group; 5] = [Group::Schema, Group::Openapi, Group::Asyncapi, Group::Docs, Group::Sdk];

    pub fn gate_name(self) -> &'static str {
        match self {
            Group::Schema => "schema-drift",
            Group::Openapi => "openapi-drift",
            Group::Asyncapi => "asyncapi-drift",
            Group::Docs => "docs-drift",
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
pub const NODE_OPENAPI: &str = "openapi/node.json";
pub const ASYNCAPI: &str = "openapi/events.json";
pub const SDK_SOURCE: &str = "crates/clients/sdk/src/generated.rs";

/// Every generated file but the cache of queries (see `queries`), in the order of their dependence: what reads
/// another comes after it.
pub fn artefacts() -> Vec<Artefact> {
    vec![
        Artefact { group: Group::Schema, path: REVISION, make: schema::revision },
        Artefact { group: Group::Schema, path: SCHEMA_DUMP, make: schema::dump },
        Artefact { group: Group::Openapi, path: PUBLIC_OPENAPI, make: |tree| document(tree, "openapi") },
        Artefact { group: Group::Openapi, path: NODE_OPENAPI, make: |tree| document(tree, "openapi-node") },
        Artefact { group: Group::Asyncapi, path: ASYNCAPI, make: |tree| document(tree, "asyncapi") },
        Artefact { group: Group::Docs, path: "docs/errors.md", make: |tree| document(tree, "errors") },
        Artefact { group: Group::Docs, path: "docs/roles.md", make: |tree| document(tree, "roles") },
        Artefact {
            group: Group::Docs,
            path: "docs/lifecycles.md",
            make: |tree| document(tree, "lifecycles"),
        },
        Artefact { group: Group::Docs, path: "docs/metrics.md", make: |tree| document(tree, "metrics") },
        Artefact { group: Group::Docs, path: "docs/policies.md", make: |tree| document(tree, "policies") },
        Artefact {
            group: Group::Sdk,
            path: SDK_SOURCE,
            make: |tree| sdk::generate_sdk(&tree.json(PUBLIC_OPENAPI)?),
        },
    ]
}

/// Writes everything, or what the named drift gates (and `sqlx-cache`) compare; says what it did. The database's
/// part comes first: the server program, which prints the rest, builds with it.
pub fn run(tree: &Tree, names: &[String]) -> anyhow::Result<()> {
    let known: Vec<&str> = Group::ALL.iter().map(|group| group.gate_name()).chain([QUERY_CACHE]).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is nothing to generate for {unknown:?}; choose from {}", known.join(", "));
    }
    let chosen = |name: &str| names.is_empty() || names.iter().any(|chosen| chosen == name);
    // One server for the dump and the cache.
    let _postgres = Lease::take();
    let say =
        |changed: bool, path: &str| println!("{:<10} {path}", if changed { "written" } else { "unchanged" });
    if chosen(QUERY_CACHE) {
        let changed = queries::refresh(tree)?;
        say(!changed.is_empty(), &format!("{} ({} changed)", queries::CACHE, changed.len()));
    }
    for artefact in artefacts().iter().filter(|artefact| chosen(artefact.group.gate_name())) {
        say(write(tree, artefact)?, artefact.path);
    }
    Ok(())
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
