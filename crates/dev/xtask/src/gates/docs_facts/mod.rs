//! What the documents say of the code and can be compared is compared: roles, crates, tables and their writers,
//! settings, metrics. A sentence can grow stale; these tables cannot.

mod crates;
mod markdown;
mod metrics;
mod roles;
mod settings;
mod tables;

use super::{Finding, Gate};
use crate::tree::Tree;

const ARCHITECTURE: &str = "docs/architecture.md";
const OPERATIONS: &str = "docs/operations.md";

pub struct DocsFacts;

impl Gate for DocsFacts {
    fn name(&self) -> &'static str {
        "docs-facts"
    }

    fn holds(&self) -> &'static str {
        "the docs name the roles, crates, tables with their writers and settings that exist and no others, and alerts name only metrics that exist"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = roles::check(tree)?;
        found.extend(crates::check(tree)?);
        found.extend(tables::check(tree)?);
        found.extend(settings::check(tree)?);
        found.extend(metrics::check(tree)?);
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        examples::examples()
    }
}

#[cfg(test)]
mod examples;
