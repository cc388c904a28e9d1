//! No locked package is on the list of known-bad versions (`deny-advisories.toml`, kept by hand).

use anyhow::{Context, bail};
use toml::Value;

use super::duplicates::locked_packages;
use super::{Finding, Gate};
use crate::tree::Tree;

const LIST: &str = "deny-advisories.toml";

pub struct Advisories;

impl Gate for Advisories {
    fn name(&self) -> &'static str {
        "advisories"
    }

    fn holds(&self) -> &'static str {
        "no locked package version is listed in deny-advisories.toml"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let list = tree.toml(LIST)?;
        let locked = locked_packages(tree)?;
        let mut found = Vec::new();
        for entry in list.get("deny").and_then(Value::as_array).into_iter().flatten() {
            let text = |key: &str| {
                entry
                    .get(key)
                    .and_then(Value::as_str)
                    .with_context(|| format!("{LIST}: an entry has no {key}"))
            };
            let (name, ranges, reason) = (text("crate")?, text("versions")?, text("reason")?);
            for (_, version) in locked.iter().filter(|(locked_name, _)| locked_name == name) {
                if in_ranges(version, ranges)? {
                    found.push(Finding::new("Cargo.lock", format!("{name} {version}: {reason}")));
                }
            }
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let lock =
            |version: &str| format!("version = 4\n[[package]]\nname = \"a\"\nversion = \"{version}\"\n");
        let list =
            "[[deny]]\ncrate = \"a\"\nversions = \">=1.0.0, <1.2.3\"\nreason = \"reads past the end\"\n";
        let tree = FixtureTree::new(&[(LIST, list), ("Cargo.lock", &lock("1.2.3"))]);
        super::tests::Examples::good(tree)
            .bad("listed version", "a 1.2.2: reads past the end", |tree| {
                tree.with("Cargo.lock", lock("1.2.2"))
            })
            .bad("list missing", "read deny-advisories.toml", |tree| tree.without(LIST))
            .bad("list without a reason", "has no reason", |tree| {
                tree.with(LIST, "[[deny]]\ncrate = \"a\"\nversions = \"*\"\n")
            })
            .bad("range that cannot be read", "not a version range", |tree| {
                tree.with(LIST, "[[deny]]\ncrate = \"a\"\nversions = \"^1\"\nreason = \"r\"\n")
            })
    }
}

/// `*`, or comparators joined by `,` (and); several such ranges are joined by `||` (or).
fn in_ranges(version: &str, ranges: &str) -> anyhow::Result<bool> {
    let version = numbers(version)?;
    let mut hit = false;
    for range in ranges.split("||") {
        let mut all = true;
        for comparator in range.split(',').map(str::trim) {
            all &= meets(version, comparator)?;
        }
        hit |= all;
    }
    Ok(hit)
}

fn meets(version: [u64; 3], comparator: &str) -> anyhow::Result<bool> {
    let bound = |prefix: &str| comparator.strip_prefix(prefix).map(|rest| numbers(rest.trim())).transpose();
    if comparator == "*" {
        Ok(true)
    } else if let Some(bound) = bound(">=")? {
        Ok(version >= bound)
    } else if let Some(bound) = bound("<=")? {
        Ok(version <= bound)
    } else if let Some(bound) = bound("<")? {
        Ok(version < bound)
    } else if let Some(bound) = bound(">")? {
        Ok(version > bound)
    } else if let Some(bound) = bound("=")? {
        Ok(version == bound)
    } else {
        bail!("{comparator:?} is not a version range; write `>=1.0.0, <1.2.3`")
    }
}

/// Major, minor and patch; a pre-release counts as its release, which errs on the side of a finding.
fn numbers(version: &str) -> anyhow::Result<[u64; 3]> {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    let mut out = [0; 3];
    let mut parts = plain.split('.');
    for slot in &mut out {
        let Some(part) = parts.next() else { break };
        *slot = part.parse().with_context(|| format!("{version:?} is not a version"))?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_exact_edges() {
        for (version, ranges, hit) in [
            ("1.0.0", ">=1.0.0, <1.2.3", true),
            ("1.2.3", ">=1.0.0, <1.2.3", false),
            ("0.9.9", ">=1.0.0, <1.2.3", false),
            ("2.0.0", "<1.0.0 || >=2.0.0, <2.0.1", true),
            ("2.0.1", "<1.0.0 || >=2.0.0, <2.0.1", false),
            ("1.10.0", "<1.9.0", false),
            ("3.1.4+build", "=3.1.4", true),
            ("9.9.9", "*", true),
        ] {
            assert_eq!(in_ranges(version, ranges).unwrap(), hit, "{version} in {ranges}");
        }
    }
}
