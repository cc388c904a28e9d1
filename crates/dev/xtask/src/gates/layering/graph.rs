//! The crate graph: which of our crates may depend on which.

use std::collections::BTreeSet;

use crate::gates::Finding;
use crate::manifest::{Crate, Section};

/// What one crate may depend on.
struct Rule {
    name: &'static str,
    /// Whole groups (`base`, `platform`, …).
    groups: &'static [&'static str],
    /// Single crates.
    crates: &'static [&'static str],
}

const fn rule(name: &'static str, groups: &'static [&'static str], crates: &'static [&'static str]) -> Rule {
    Rule { name, groups, crates }
}

const BASE: &[&str] = &["base"];
const BELOW_DOMAINS: &[&str] = &["base", "platform"];

/// The whole graph. A crate that is not here does not pass; crates in `dev` may use anything.
const RULES: &[Rule] = &[
    rule("lifecycle", &[], &[]),
    rule("kernel", &[], &["lifecycle"]),
    rule("events", &[], &["kernel", "lifecycle"]),
    rule("recording", &[], &["kernel"]),
    rule("pg", BASE, &[]),
    rule("objects", BASE, &[]),
    rule("endpoint", BASE, &["pg", "telemetry", "trust"]),
    rule("listener", &[], &[]),
    rule("pages", BASE, &[]),
    rule("bus", BASE, &["pg", "endpoint", "telemetry", "trust"]),
    rule("saga", BASE, &["pg", "endpoint", "telemetry", "trust"]),
    rule("trust", BASE, &["pg"]),
    rule("telemetry", BASE, &["pg"]),
    rule("identity", BELOW_DOMAINS, &[]),
    rule("fleet", BELOW_DOMAINS, &["identity", "node-proto", "node-tunnel"]),
    rule("billing", BELOW_DOMAINS, &["identity"]),
    rule("notify", BELOW_DOMAINS, &["identity"]),
    rule("storage", BELOW_DOMAINS, &["identity", "node-proto"]),
    rule("capacity", BELOW_DOMAINS, &["fleet", "billing", "identity", "node-proto"]),
    rule("payments", BELOW_DOMAINS, &["billing"]),
    rule(
        "terminal",
        BELOW_DOMAINS,
        &["capacity", "fleet", "identity", "storage", "node-proto", "node-tunnel"],
    ),
    rule("apps", BELOW_DOMAINS, &["capacity", "billing"]),
    rule("node-proto", BASE, &[]),
    rule("node-tunnel", BASE, &["node-proto"]),
    rule("node-terminal", BASE, &["node-proto", "node-tunnel"]),
    rule("node-agent", BASE, &["node-proto", "node-tunnel", "node-terminal"]),
    rule("node-sim", BASE, &["node-proto", "node-agent", "node-terminal", "node-tunnel", "sdk"]),
    rule("sdk", &[], &[]),
    rule("cli", &[], &["sdk", "kernel", "recording"]),
    rule("slurm-controller", &[], &["sdk"]),
    rule("rke2-controller", &[], &["sdk"]),
    rule("gpuaasd", &["base", "platform", "domains"], &["node-proto"]),
];

/// Groups and crates that a crate may depend on; nothing for a crate that is not in the graph.
pub fn allowed_dependencies(name: &str) -> Option<BTreeSet<String>> {
    let rule = RULES.iter().find(|rule| rule.name == name)?;
    Some(rule.groups.iter().chain(rule.crates).map(|name| (*name).to_owned()).collect())
}

pub fn check(crates: &[Crate]) -> Vec<Finding> {
    let mut found = Vec::new();
    for member in crates.iter().filter(|member| member.group != "dev") {
        let at = member.manifest_path();
        let Some(rule) = RULES.iter().find(|rule| rule.name == member.name) else {
            let message =
                format!("{} is not in the crate graph: give it its place in xtask's layering", member.name);
            found.push(Finding::new(at, message));
            continue;
        };
        for dependency in member.dependencies() {
            let Some(ours) = crates.iter().find(|other| other.name == dependency.package) else { continue };
            let allowed = rule.groups.contains(&ours.group.as_str())
                || rule.crates.contains(&ours.name.as_str())
                || (dependency.section == Section::Dev && ours.group == "dev");
            if !allowed {
                let message = format!("{} must not depend on {}", member.name, ours.name);
                found.push(Finding::new(&at, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Depth-first, with the crates on the current path.
    fn has_cycle(name: &'static str, path: &mut Vec<&'static str>) -> bool {
        if path.contains(&name) {
            return true;
        }
        path.push(name);
        let rule = RULES.iter().find(|rule| rule.name == name).unwrap();
        let cyclic = rule.crates.iter().any(|next| has_cycle(next, path));
        path.pop();
        cyclic
    }

    #[test]
    fn the_graph_names_known_crates_once_and_has_no_cycle() {
        for rule in RULES {
            assert_eq!(RULES.iter().filter(|other| other.name == rule.name).count(), 1, "{}", rule.name);
            for target in rule.crates {
                assert!(RULES.iter().any(|other| other.name == *target), "{target}");
            }
            assert!(!has_cycle(rule.name, &mut Vec::new()), "{}", rule.name);
        }
    }
}
