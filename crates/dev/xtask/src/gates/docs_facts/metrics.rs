//! Metrics that the table of alerts names, and the labels that the catalog has for each metric. The page of all metrics
//! is generated (`docs-drift`).

use std::collections::{BTreeMap, BTreeSet};

use super::{OPERATIONS, markdown};
use crate::gates::{Finding, metric_names};
use crate::rust_tokens::{self, Kind, Token};
use crate::tree::{Tree, is_test_path};

const MACROS: [&str; 3] = ["counter", "gauge", "histogram"];

pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let known = metric_names::catalog_names(tree)?;
    let mut found = Vec::new();
    let alerts = markdown::table_rows(&tree.read(OPERATIONS)?, &["when"]);
    if alerts.is_empty() {
        found.push(Finding::new(OPERATIONS, "has no table of alerts (\"when\")"));
    }
    for row in alerts {
        for span in markdown::code_spans(&row.cells[0]) {
            for name in
                metric_names::series(span).into_iter().filter(|name| !metric_names::is_known(&known, name))
            {
                found.push(Finding::at_line(OPERATIONS, row.line, format!("there is no metric {name}")));
            }
        }
    }
    found.extend(labels(tree)?);
    Ok(found)
}

/// The labels of each metric in code are those of its row in the catalog: `counter(NAME, &[("label", &["value"])], "help")`.
fn labels(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let catalog = rust_tokens::tokens(&tree.read(metric_names::CATALOG)?)?;
    let constants = metric_names::constants(&catalog);
    let declared = declared_labels(&catalog, &constants);
    let mut found = Vec::new();
    for path in tree.files()?.iter().filter(|path| path.ends_with(".rs") && !path.starts_with("crates/dev/"))
    {
        if is_test_path(path) || path == metric_names::CATALOG {
            continue;
        }
        for (name, line, used) in used_labels(&rust_tokens::tokens(&tree.read(path)?)?, &constants) {
            let wanted = declared.get(name.as_str()).cloned().unwrap_or_default();
            if used != wanted {
                let list = |labels: &BTreeSet<String>| labels.iter().cloned().collect::<Vec<_>>().join(", ");
                let message =
                    format!("{name} has labels [{}], the catalog says [{}]", list(&used), list(&wanted));
                found.push(Finding::at_line(path, line, message));
            }
        }
    }
    Ok(found)
}

/// Metric → labels, from the rows of the catalog. A label is the string that opens a tuple.
fn declared_labels<'a>(
    catalog: &[Token],
    constants: &BTreeMap<&str, &'a str>,
) -> BTreeMap<&'a str, BTreeSet<String>> {
    let mut out = BTreeMap::new();
    for (at, token) in catalog.iter().enumerate() {
        if !token.ident().is_some_and(|ident| MACROS.contains(&ident)) {
            continue;
        }
        let row = arguments(&catalog[at + 1..]);
        let Some(name) = row.first().and_then(|first| first.ident()).and_then(|ident| constants.get(ident))
        else {
            continue;
        };
        let labels = row.windows(2).filter_map(|pair| {
            let opens = pair[0].kind == Kind::Open('(');
            pair[1].string().filter(|_| opens).map(str::to_owned)
        });
        out.insert(*name, labels.collect());
    }
    out
}

/// Metric, line and labels of each `counter!(NAME, "label" => …)` outside of tests whose labels stand in the call.
fn used_labels(tokens: &[Token], constants: &BTreeMap<&str, &str>) -> Vec<(String, usize, BTreeSet<String>)> {
    let mut out = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_macro = token.ident().is_some_and(|ident| MACROS.contains(&ident))
            && tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Punct('!'));
        if !is_macro || token.in_test {
            continue;
        }
        let call = arguments(&tokens[at + 2..]);
        let first: Vec<&Token> =
            call.iter().copied().take_while(|token| token.kind != Kind::Punct(',')).collect();
        let name = first.iter().find_map(|token| {
            token.string().or_else(|| token.ident().and_then(|ident| constants.get(ident).copied()))
        });
        // A list that was made elsewhere cannot be read here.
        let is_list = call.get(first.len() + 1).is_some_and(|token| token.kind == Kind::Punct('&'));
        let Some(name) = name.filter(|_| !is_list) else { continue };
        let labels = call.windows(3).filter_map(|window| {
            let is_arrow = window[1].kind == Kind::Punct('=') && window[2].kind == Kind::Punct('>');
            window[0].string().filter(|_| is_arrow).map(str::to_owned)
        });
        out.push((name.to_owned(), token.line, labels.collect()));
    }
    out
}

/// The tokens inside the first pair of brackets.
fn arguments(tokens: &[Token]) -> Vec<&Token> {
    let mut depth = 0_usize;
    let mut out = Vec::new();
    for token in tokens {
        match token.kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            break;
        }
        out.push(token);
    }
    out.into_iter().skip(1).collect()
}
