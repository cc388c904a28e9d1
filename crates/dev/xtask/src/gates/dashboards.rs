//! Dashboards can be imported and show something: their metrics exist, and each panel asks the data source that is chosen.
//!
//! Grafana takes a panel about a metric that nobody sets, and says "No data", as it does when all is well.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::metric_names::{catalog_names, is_known, series};
use super::{Finding, Gate};
use crate::tree::Tree;

const DASHBOARDS: &str = "deploy/dashboards/";

#[derive(Deserialize)]
struct Dashboard {
    uid: String,
    title: String,
    templating: Templating,
    panels: Vec<Panel>,
}

#[derive(Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    /// PromQL of a variable with the values of a label.
    #[serde(default)]
    definition: String,
}

#[derive(Deserialize)]
struct Panel {
    id: u64,
    #[serde(rename = "type")]
    kind: String,
    title: String,
    #[serde(default)]
    description: String,
    datasource: Option<DataSource>,
    #[serde(default)]
    targets: Vec<Target>,
    /// Of a row that is collapsed.
    #[serde(default)]
    panels: Vec<Self>,
}

#[derive(Deserialize)]
struct DataSource {
    uid: String,
}

#[derive(Deserialize)]
struct Target {
    expr: String,
}

pub struct Dashboards;

impl Gate for Dashboards {
    fn name(&self) -> &'static str {
        "dashboards"
    }

    fn holds(&self) -> &'static str {
        "every panel in deploy/dashboards names metrics that exist, says what it shows, and asks the chosen data source"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let known = catalog_names(tree)?;
        let (mut found, mut uids) = (Vec::new(), BTreeSet::new());
        for path in
            tree.files()?.iter().filter(|path| path.starts_with(DASHBOARDS) && path.ends_with(".json"))
        {
            let dashboard: Dashboard = match serde_json::from_value(tree.json(path)?) {
                Ok(dashboard) => dashboard,
                Err(error) => {
                    found.push(Finding::new(path, format!("is no dashboard: {error}")));
                    continue;
                }
            };
            let problems = dashboard_problems(&dashboard, &known);
            found.extend(problems.into_iter().map(|message| Finding::new(path, message)));
            if !uids.insert(dashboard.uid) {
                found.push(Finding::new(path, "another dashboard has its uid, and would replace it"));
            }
        }
        if uids.is_empty() {
            found.push(Finding::new(DASHBOARDS, "holds no dashboard"));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use super::metric_names::CATALOG;
        use crate::tree::FixtureTree;
        const PATH: &str = "deploy/dashboards/fleet.json";
        let catalog = "pub const NODES: &str = \"nodes\";\npub const B_SECONDS: &str = \"b_seconds\";\n";
        let dashboard = r#"{ "uid": "fleet", "title": "Fleet", "templating": { "list": [
            { "name": "datasource", "type": "datasource", "query": "prometheus" },
            { "name": "instance", "type": "query", "definition": "label_values(nodes, instance)" } ] },
            "panels": [ { "id": 1, "type": "row", "title": "All", "panels": [] },
            { "id": 2, "type": "timeseries", "title": "Nodes", "description": "By state.",
              "datasource": { "type": "prometheus", "uid": "${datasource}" },
              "targets": [ { "expr": "sum by (state) (nodes{instance=~\"$instance\"})" },
                           { "expr": "rate(b_seconds_sum[$__rate_interval])" } ] } ] }"#;
        let tree = FixtureTree::new(&[(CATALOG, catalog), (PATH, dashboard)]);
        let with = |from: &'static str, to: &'static str| {
            move |tree: FixtureTree| {
                assert!(dashboard.contains(from), "{from}");
                tree.with(PATH, dashboard.replace(from, to))
            }
        };
        super::tests::Examples::good(tree)
            .bad("unknown metric", "\"Nodes\": metric \"b_total\"", with("b_seconds_sum", "b_total"))
            .bad("unknown metric of one word", "metric \"pods\"", with("nodes{", "pods{"))
            .bad("no metric", "names no metric", with("rate(b_seconds_sum[$__rate_interval])", "vector(1)"))
            .bad("unknown metric in a variable", "instance: metric \"pods\"", with("label_values(nodes", "label_values(pods"))
            .bad("unknown metric in a collapsed row", "metric \"c_total\"", with(
                "\"panels\": [] }",
                "\"panels\": [ { \"id\": 3, \"type\": \"stat\", \"title\": \"C\", \"description\": \"C.\", \
                 \"datasource\": { \"uid\": \"${datasource}\" }, \"targets\": [ { \"expr\": \"c_total\" } ] } ] }",
            ))
            .bad("fixed data source", "asks the data source \"main\"", with("${datasource}", "main"))
            .bad("no data source", "asks no data source", with("\"datasource\": {", "\"source\": {"))
            .bad("no variable", "no variable of the type datasource", with("\"type\": \"datasource\"", "\"type\": \"custom\""))
            .bad("nothing asked", "asks nothing", with("\"targets\": [ { \"expr\": \"sum by (state) (nodes{instance=~\\\"$instance\\\"})\" },
                           { \"expr\": \"rate(b_seconds_sum[$__rate_interval])\" } ]", "\"targets\": []"))
            .bad("no description", "has no description", with("By state.", ""))
            .bad("one id twice", "two panels have the id 2", with("\"id\": 1", "\"id\": 2"))
            .bad("no title", "is no dashboard", with("\"title\": \"Fleet\",", ""))
            .bad("one uid twice", "another dashboard", |tree| tree.with("deploy/dashboards/other.json", dashboard))
            .bad("no dashboards", "holds no dashboard", |tree| tree.without(PATH))
    }
}

fn dashboard_problems(dashboard: &Dashboard, known: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    if dashboard.uid.is_empty() || dashboard.title.is_empty() {
        problems.push("has no uid, or no title".to_owned());
    }
    let variables = &dashboard.templating.list;
    let source = variables.iter().find(|variable| variable.kind == "datasource");
    if source.is_none() {
        problems.push("has no variable of the type datasource".to_owned());
    }
    let source = source.map(|variable| format!("${{{}}}", variable.name)).unwrap_or_default();
    for variable in variables {
        let arguments = variable.definition.strip_prefix("label_values(");
        let metric = arguments.and_then(|arguments| arguments.split_once(','));
        for name in metric.iter().flat_map(|(metric, _)| series(metric)).filter(|name| !is_known(known, name))
        {
            problems.push(format!("variable {}: metric {name:?} is unknown", variable.name));
        }
    }
    let (mut panels, mut ids) = (dashboard.panels.iter().collect::<Vec<_>>(), BTreeSet::new());
    while let Some(panel) = panels.pop() {
        panels.extend(&panel.panels);
        if !ids.insert(panel.id) {
            problems.push(format!("two panels have the id {}", panel.id));
        }
        if panel.kind != "row" {
            let found = panel_problems(panel, &source, known);
            problems.extend(found.into_iter().map(|problem| format!("panel {:?}: {problem}", panel.title)));
        }
    }
    problems
}

fn panel_problems(panel: &Panel, source: &str, known: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    if panel.title.is_empty() || panel.description.is_empty() {
        problems.push("has no description, or no title".to_owned());
    }
    match &panel.datasource {
        None => problems.push("asks no data source".to_owned()),
        Some(DataSource { uid }) if uid != source => {
            problems.push(format!("asks the data source {uid:?}, and not {source:?}"));
        }
        Some(_) => {}
    }
    if panel.targets.is_empty() {
        problems.push("asks nothing".to_owned());
    }
    for Target { expr } in &panel.targets {
        let named = series(expr);
        if !named.iter().any(|name| is_known(known, name)) {
            problems.push(format!("{expr:?} names no metric of the product"));
        }
        let unknown = named.iter().filter(|name| !is_known(known, name));
        problems.extend(unknown.map(|name| format!("metric {name:?} is unknown")));
    }
    problems
}
