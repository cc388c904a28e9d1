//! Alert rules can fire and say what to do: their metrics exist, and each leads to a runbook.
//!
//! Prometheus takes a rule about a metric that nobody sets, and never fires it. Whoever is woken by one that does fire needs
//! the heading that it names.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::docs_links::anchors;
use super::metric_names::{catalog_names, is_known, series};
use super::{Finding, Gate};
use crate::tree::Tree;

const RULES: &str = "deploy/alerts.yml";
const SEVERITIES: [&str; 2] = ["critical", "warning"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(rename = "for", default)]
    _for: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: Annotations,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotations {
    summary: String,
    description: String,
    runbook: String,
}

pub struct Alerts;

impl Gate for Alerts {
    fn name(&self) -> &'static str {
        "alerts"
    }

    fn holds(&self) -> &'static str {
        "every rule in deploy/alerts.yml names metrics that exist, says what is wrong, and leads to a runbook"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let file: File = serde_yaml_ng::from_str(&tree.read(RULES)?)?;
        let known = catalog_names(tree)?;
        let (mut found, mut names) = (Vec::new(), BTreeSet::new());
        for group in &file.groups {
            for rule in &group.rules {
                if !names.insert(rule.alert.as_str()) {
                    found.push(Finding::new(RULES, format!("{} stands there twice", rule.alert)));
                }
                let at = format!("{RULES}: {}: {}", group.name, rule.alert);
                found.extend(
                    problems(tree, rule, &known)?.into_iter().map(|message| Finding::new(&at, message)),
                );
            }
        }
        if names.is_empty() {
            found.push(Finding::new(RULES, "holds no rule"));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let catalog = "pub const NODES: &str = \"nodes\";\npub const B_SECONDS: &str = \"b_seconds\";\n";
        let rules = "groups:\n- name: fleet\n  rules:\n  - alert: NodesOffline\n    expr: |\n      max by (state) (nodes{state=\"offline\"}) > 0\n      \
                     and rate(b_seconds_count[5m]) > bool 2 offset 5m\n    for: 5m\n    labels: { severity: warning }\n    annotations:\n      \
                     summary: Nodes are offline\n      description: They do not report.\n      runbook: docs/operations.md#a-node-is-offline\n";
        let tree = FixtureTree::new(&[
            ("crates/platform/telemetry/src/names.rs", catalog),
            (RULES, rules),
            ("docs/operations.md", "# Operations\n\n### A node is offline\n"),
        ]);
        let with = |from: &'static str, to: &'static str| {
            move |tree: FixtureTree| {
                assert!(rules.contains(from), "{from}");
                tree.with(RULES, rules.replace(from, to))
            }
        };
        super::tests::Examples::good(tree)
            .bad("unknown metric of one word", "metric \"pods\"", with("nodes{", "pods{"))
            .bad(
                "unknown metric on the second line",
                "metric \"c_total\"",
                with("b_seconds_count", "c_total"),
            )
            .bad("no metric", "names no metric", |tree| {
                let without = |rules: &str| {
                    rules.replace("nodes{state=\"offline\"}", "1").replace("b_seconds_count[5m]", "2")
                };
                tree.with(RULES, without(rules))
            })
            .bad("no such heading", "has no heading \"nope\"", with("#a-node-is-offline", "#nope"))
            .bad("no heading named", "names no heading", with("#a-node-is-offline", ""))
            .bad("no such page", "docs/other.md", with("operations.md#", "other.md#"))
            .bad("empty description", "description", with("They do not report.", "\"\""))
            .bad("no description", "description", with("description:", "text:"))
            .bad("unknown severity", "severity", with("severity: warning", "severity: loud"))
            .bad("no severity", "severity", with("severity: warning", "team: ops"))
            .bad("one name twice", "NodesOffline stands there twice", |tree| {
                let rule = rules.split_once("  rules:\n").map_or("", |(_, rule)| rule);
                tree.with(RULES, format!("{rules}{rule}"))
            })
            .bad("no rules", "holds no rule", |tree| tree.with(RULES, "groups: []\n"))
            .bad("no file", RULES, |tree| tree.without(RULES))
    }
}

fn problems(tree: &Tree, rule: &Rule, known: &BTreeSet<String>) -> anyhow::Result<Vec<String>> {
    let mut out = Vec::new();
    let named = series(&rule.expr);
    if !named.iter().any(|name| is_known(known, name)) {
        out.push("its expression names no metric of the product".to_owned());
    }
    out.extend(
        named.iter().filter(|name| !is_known(known, name)).map(|name| format!("metric {name:?} is unknown")),
    );
    if !rule.labels.get("severity").is_some_and(|severity| SEVERITIES.contains(&severity.as_str())) {
        out.push(format!("the label severity must be one of {}", SEVERITIES.join(", ")));
    }
    let Annotations { summary, description, runbook } = &rule.annotations;
    for (name, text) in [("summary", summary), ("description", description)] {
        if text.trim().is_empty() {
            out.push(format!("its {name} is empty"));
        }
    }
    match runbook.split_once('#') {
        None => out.push(format!("its runbook {runbook:?} names no heading")),
        Some((page, _)) if !tree.exists(page) => out.push(format!("its runbook {page} does not exist")),
        Some((page, anchor)) if !anchors(&tree.read(page)?).contains(anchor) => {
            out.push(format!("its runbook {page} has no heading {anchor:?}"));
        }
        Some(_) => {}
    }
    Ok(out)
}
