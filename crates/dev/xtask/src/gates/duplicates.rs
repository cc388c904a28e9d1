//! Heavy packages are built once.

use std::collections::BTreeMap;

use super::{Finding, Gate};
use crate::tree::Tree;

/// Two versions of one of these cost minutes of build, or break by having two of a global thing.
const HEAVY: [&str; 8] =
    ["tokio", "hyper", "axum", "sqlx-core", "rustls", "reqwest", "aws-lc-rs", "opentelemetry"];

pub struct Duplicates;

impl Gate for Duplicates {
    fn name(&self) -> &'static str {
        "duplicates"
    }

    fn holds(&self) -> &'static str {
        "no heavy package is locked in two versions"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, version) in locked_packages(tree)? {
            if HEAVY.contains(&name.as_str()) {
                versions.entry(name).or_default().push(version);
            }
        }
        versions.retain(|_, versions| versions.len() > 1);
        let describe = |(name, versions): (String, Vec<String>)| {
            let message =
                format!("{name} is locked as {}; make its users agree on one", versions.join(" and "));
            Finding::new("Cargo.lock", message)
        };
        Ok(versions.into_iter().map(describe).collect())
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let one = "version = 4\n[[package]]\nname = \"tokio\"\nversion = \"1.2.0\"\n\
                   [[package]]\nname = \"light\"\nversion = \"1.0.0\"\n\
                   [[package]]\nname = \"light\"\nversion = \"2.0.0\"\n";
        let two = format!("{one}[[package]]\nname = \"tokio\"\nversion = \"0.3.0\"\n");
        super::tests::Examples::good(FixtureTree::new(&[("Cargo.lock", one)]))
            .bad("two versions", "tokio is locked as 1.2.0 and 0.3.0", |tree| tree.with("Cargo.lock", two))
            .bad("lock file missing", "read Cargo.lock", |tree| tree.without("Cargo.lock"))
    }
}

/// Name and version of everything in `Cargo.lock`.
pub fn locked_packages(tree: &Tree) -> anyhow::Result<Vec<(String, String)>> {
    let lock = tree.toml("Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    Ok(packages
        .into_iter()
        .flatten()
        .filter_map(|package| Some((text(package, "name")?, text(package, "version")?)))
        .collect())
}
