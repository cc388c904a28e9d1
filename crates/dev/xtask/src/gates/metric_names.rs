//! Metrics have one catalog (`telemetry::names`), and everything that names a metric agrees with it.
//!
//! Crates below `telemetry` cannot use its constants and write the name as a literal; dashboards and alert rules write
//! it in PromQL. Both are compared with the catalog here.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Gate};
use crate::rust_tokens::{self, Kind, Token};
use crate::tree::{Tree, is_test_path};

pub(super) const CATALOG: &str = "crates/platform/telemetry/src/names.rs";
const MACROS: [&str; 3] = ["counter", "gauge", "histogram"];
/// What Prometheus makes out of one histogram.
const SERIES_SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

pub struct MetricNames;

impl Gate for MetricNames {
    fn name(&self) -> &'static str {
        "metric-names"
    }

    fn holds(&self) -> &'static str {
        "every metric in code, dashboards and alerts is in the catalog, well named and in use"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let catalog = rust_tokens::tokens(&tree.read(CATALOG)?)?;
        let constants = constants(&catalog);
        check_names(&catalog, &constants, &mut found);
        let known: BTreeSet<String> = constants.values().map(|name| (*name).to_owned()).collect();

        let mut used: BTreeSet<String> = BTreeSet::new();
        for path in tree.files()? {
            if path.starts_with("deploy/") && [".json", ".yaml", ".yml"].iter().any(|end| path.ends_with(end))
            {
                check_expressions(path, &tree.read(path)?, &known, &mut found);
            }
            if !path.ends_with(".rs")
                || path == CATALOG
                || is_test_path(path)
                || path.starts_with("crates/dev/")
            {
                continue;
            }
            let tokens = rust_tokens::tokens(&tree.read(path)?)?;
            for token in tokens.iter().filter(|token| !token.in_test) {
                used.extend(
                    token.ident().and_then(|ident| constants.get(ident)).map(|name| (*name).to_owned()),
                );
                used.extend(token.string().filter(|text| known.contains(*text)).map(str::to_owned));
            }
            for (name, line) in literal_metrics(&tokens) {
                if !known.contains(name) {
                    found.push(Finding::at_line(path, line, format!("metric {name:?} is not in {CATALOG}")));
                }
            }
        }
        for name in known.iter().filter(|name| !used.contains(*name)) {
            found.push(Finding::new(CATALOG, format!("metric {name:?} is never set")));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        use crate::tree::FixtureTree;
        let catalog = "pub const A_TOTAL: &str = \"a_total\";\npub const B_SECONDS: &str = \"b_seconds\";\n\
                       pub const ALL: &[Metric] = &[counter(A_TOTAL, &[], \"help\"), histogram(B_SECONDS, &[], \"help\")];\n";
        let code = "fn f() { counter!(\"a_total\", \"k\" => \"v\"); histogram!(names::B_SECONDS); }\n\
                    #[cfg(test)]\nmod tests { fn g() { counter!(\"made_up\") } }\n";
        let rule = "expr: sum by (le_x) (rate(b_seconds_bucket{some_label=\"x_y\"}[5m])) > 0\n";
        let tree = FixtureTree::new(&[
            (CATALOG, catalog),
            ("crates/platform/pg/src/lib.rs", code),
            ("deploy/alerts.yaml", rule),
        ]);
        let code_path = "crates/platform/pg/src/lib.rs";
        super::tests::Examples::good(tree)
            .bad("unknown in code", "lib.rs:2: metric \"c_total\"", |tree| {
                tree.with(code_path, "fn f() { A_TOTAL; B_SECONDS;\n metrics::counter!(\"c_total\"); }\n")
            })
            .bad("unknown in an alert", "deploy/alerts.yaml:1: metric \"d_total\"", |tree| {
                tree.with("deploy/alerts.yaml", "expr: rate(d_total[5m]) > 1\n")
            })
            .bad("unknown in a dashboard", "deploy/d.json:1: metric \"e_total\"", |tree| {
                tree.with("deploy/d.json", "{\"expr\": \"rate(e_total[5m])\"}\n")
            })
            .bad("never set", "\"b_seconds\" is never set", |tree| {
                tree.with(code_path, "fn f() { counter!(\"a_total\") }\n")
            })
            .bad("counter without _total", "must end in _total", |tree| {
                tree.with(CATALOG, "const A: &str = \"a\";\nconst ALL: &[M] = &[counter(A, &[], \"\")];\n")
            })
            .bad("not snake case", "snake_case", |tree| tree.with(CATALOG, "const A: &str = \"a-total\";\n"))
            .bad("no catalog", CATALOG, |tree| tree.without(CATALOG))
    }
}

/// Every metric name of the catalog.
pub(super) fn catalog_names(tree: &Tree) -> anyhow::Result<BTreeSet<String>> {
    let catalog = rust_tokens::tokens(&tree.read(CATALOG)?)?;
    Ok(constants(&catalog).into_values().map(str::to_owned).collect())
}

/// Whether a series is a metric of the catalog, or one of those that a histogram has.
pub(super) fn is_known(known: &BTreeSet<String>, name: &str) -> bool {
    let base = SERIES_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    known.contains(base) || known.contains(name)
}

/// Constants of the catalog: identifier → metric name.
pub(super) fn constants(tokens: &[Token]) -> BTreeMap<&str, &str> {
    let mut out = BTreeMap::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some(ident) = token.ident().filter(|_| at > 0 && tokens[at - 1].is("const")) else { continue };
        // `const NAME: &str = "value"`
        let is_str = tokens.get(at + 3).is_some_and(|kind| kind.is("str"));
        if let Some(name) = tokens.get(at + 5).and_then(Token::string).filter(|_| is_str && !token.in_test) {
            out.insert(ident, name);
        }
    }
    out
}

fn check_names(tokens: &[Token], constants: &BTreeMap<&str, &str>, found: &mut Vec<Finding>) {
    for name in constants.values() {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !name.chars().all(fits) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
            found.push(Finding::new(CATALOG, format!("metric {name:?} is not snake_case")));
        }
    }
    for (at, token) in tokens.iter().enumerate() {
        let argument = tokens.get(at + 2).and_then(Token::ident).and_then(|ident| constants.get(ident));
        let Some(name) = argument else { continue };
        if token.is("counter") && !name.ends_with("_total") {
            found.push(Finding::at_line(CATALOG, token.line, format!("counter {name:?} must end in _total")));
        }
        if token.is("gauge") && name.ends_with("_total") {
            found.push(Finding::at_line(
                CATALOG,
                token.line,
                format!("gauge {name:?} must not end in _total"),
            ));
        }
        if token.is("histogram") && !["_seconds", "_bytes"].iter().any(|unit| name.ends_with(unit)) {
            found.push(Finding::at_line(
                CATALOG,
                token.line,
                format!("histogram {name:?} must end in its unit"),
            ));
        }
    }
}

/// Names given as literals to the metric macros, outside tests.
fn literal_metrics(tokens: &[Token]) -> Vec<(&str, usize)> {
    let mut out = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_macro = token.ident().is_some_and(|ident| MACROS.contains(&ident))
            && tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Punct('!'));
        if !is_macro || token.in_test {
            continue;
        }
        if let Some(argument) = tokens.get(at + 3)
            && let Some(name) = argument.string()
        {
            out.push((name, argument.line));
        }
    }
    out
}

/// PromQL in dashboards (`"expr": "…"`) and rules (`expr: …`, on one line).
fn check_expressions(path: &str, text: &str, known: &BTreeSet<String>, found: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let Some((_, expression)) = line.split_once("expr\":").or_else(|| line.split_once("expr:")) else {
            continue;
        };
        // Other words may follow on the line of a dashboard; names of one word are left to the gate of alert rules.
        for name in series(expression).into_iter().filter(|name| name.contains('_')) {
            if !is_known(known, &name) {
                found.push(Finding::at_line(path, index + 1, format!("metric {name:?} is not in {CATALOG}")));
            }
        }
    }
}

/// Words of PromQL that stand where a series could, and are none.
const PROMQL_WORDS: [&str; 25] = [
    "and",
    "or",
    "unless",
    "bool",
    "offset",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "inf",
    "nan",
    "sum",
    "min",
    "max",
    "avg",
    "count",
    "group",
    "stddev",
    "stdvar",
    "topk",
    "bottomk",
    "quantile",
    "atan2",
];

/// Words of a PromQL expression that are series, and no function, label, grouping or number.
pub(super) fn series(expression: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut word = String::new();
    let mut last_word = String::new();
    // Inside `{…}`, `[…]` or the brackets of a grouping there are no series.
    let mut hidden = 0_usize;
    let mut brackets = Vec::new();
    for c in expression.chars().chain([' ']) {
        if c.is_ascii_alphanumeric() || c == '_' || c == ':' {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            let is_name = word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
            if hidden == 0 && c != '(' && is_name && !PROMQL_WORDS.contains(&word.to_lowercase().as_str()) {
                out.push(word.clone());
            }
            last_word = std::mem::take(&mut word);
        }
        match c {
            '(' => {
                let groups = ["by", "without", "on", "ignoring", "group_left", "group_right"];
                let grouping = groups.contains(&last_word.as_str());
                brackets.push(grouping);
                hidden += usize::from(grouping);
                last_word.clear();
            }
            ')' => hidden -= usize::from(brackets.pop().unwrap_or(false)),
            '{' | '[' => hidden += 1,
            '}' | ']' => hidden = hidden.saturating_sub(1),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::series;

    #[test]
    fn series_are_told_from_functions_labels_and_groupings() {
        let expression = "histogram_quantile(0.9, sum by (le, the_role) (rate(a_seconds_bucket{x_y=\"z\"}[5m]))) \
                          / on (b_c) group_left (d_e) f_total > 0}";
        assert_eq!(series(expression), ["a_seconds_bucket", "f_total"]);
    }
}
