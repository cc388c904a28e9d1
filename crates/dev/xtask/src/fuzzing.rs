//! Which domains' part of the API is fuzzed.
//!
//! Fuzzing the whole contract takes minutes. CI runs all of it. Elsewhere `cargo xtask test` leaves out the domains that
//! did not change since the main branch; a change of what all domains use counts as a change of all.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::exec;

const LIMIT: Duration = Duration::from_secs(30);

/// The domains as the tests in `contract_fuzzing` of gpuaasd name them, and the crates of each.
const DOMAINS: [(&str, &[&str]); 6] = [
    ("identity", &["crates/domains/identity/"]),
    ("fleet", &["crates/domains/fleet/", "crates/node/"]),
    ("capacity", &["crates/domains/capacity/"]),
    ("money", &["crates/domains/billing/", "crates/domains/payments/"]),
    ("notify", &["crates/domains/notify/"]),
    ("platform", &["crates/platform/bus/", "crates/platform/saga/"]),
];

/// Changes of these reach no domain's operations.
const UNRELATED: [&str; 8] =
    ["crates/clients/", "crates/dev/", "crates/apps/", "docs/", "deploy/", "scripts/", ".ci/", "web/"];

/// A filter expression of nextest that leaves out the fuzzing of domains that did not change; none: all is fuzzed.
pub fn filter(root: &Path) -> Option<String> {
    if std::env::var_os("CI").is_some() {
        return None;
    }
    let left_out = unchanged(&changed_paths(root)?);
    if left_out.is_empty() {
        return None;
    }
    println!(
        "   not fuzzed, because unchanged since the main branch: {} (CI=true: all)",
        left_out.join(", ")
    );
    let tests: Vec<String> =
        left_out.iter().map(|domain| format!("test(/^contract_fuzzing::{domain}_/)")).collect();
    Some(format!("not ({})", tests.join(" or ")))
}

/// What differs from the main branch, committed or not; nothing when git cannot say.
fn changed_paths(root: &Path) -> Option<Vec<String>> {
    let git =
        |args: &[&str]| exec::run(root, "git", args, LIMIT).ok().filter(|ran| ran.ok).map(|ran| ran.stdout);
    let base = ["origin/main", "main"].iter().find_map(|main| git(&["merge-base", "HEAD", main]))?;
    let committed = git(&["diff", "--name-only", base.trim()])?;
    let untracked = git(&["ls-files", "--others", "--exclude-standard"])?;
    Some(committed.lines().chain(untracked.lines()).map(str::to_owned).collect())
}

/// The domains whose operations are what they were.
fn unchanged(paths: &[String]) -> Vec<&'static str> {
    let mut changed = BTreeSet::new();
    for path in paths {
        let begins = |prefix: &&str| path.starts_with(*prefix);
        let owner = DOMAINS.iter().find(|(_, crates)| crates.iter().any(&begins));
        match owner {
            Some((domain, _)) => drop(changed.insert(*domain)),
            None if UNRELATED.iter().any(begins) || path.ends_with(".md") => {}
            None => return Vec::new(),
        }
    }
    DOMAINS.iter().map(|(domain, _)| *domain).filter(|domain| !changed.contains(domain)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unchanged_by(paths: &[&str]) -> Vec<&'static str> {
        unchanged(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_changed_domain_is_fuzzed_and_the_others_are_left_out() {
        let all: Vec<&str> = DOMAINS.iter().map(|(domain, _)| *domain).collect();
        assert_eq!(unchanged_by(&["docs/money.md", "crates/clients/cli/src/main.rs", "README.md"]), all);
        let left_out =
            unchanged_by(&["crates/domains/payments/src/lib.rs", "crates/node/node-proto/src/lib.rs"]);
        assert_eq!(left_out, ["identity", "capacity", "notify", "platform"]);
    }

    #[test]
    fn a_change_of_what_all_domains_use_fuzzes_all() {
        for path in [
            "crates/base/kernel/src/ids.rs",
            "crates/platform/endpoint/src/lib.rs",
            "Cargo.lock",
            "migrations/x",
        ] {
            assert!(unchanged_by(&[path, "docs/money.md"]).is_empty(), "{path}");
        }
    }
}
