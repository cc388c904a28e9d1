//! Metrics that the operations guide names, and the labels that the catalog says each metric has.

use std::collections::{BTreeMap, BTreeSet};

use super::{OPERATIONS, markdown};
use crate::gates::{Finding, metric_names};
use crate::rust_tokens::{self, Kind, Token};
use crate::tree::{Tree, is_test_path};

const MACROS: [&str; 3] = ["counter", "gauge", "histogram"];
/// The paragraph that lists metrics begins so.
const LISTED: &str = "Metrics of ";

pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let known = metric_names::catalog_names(tree)?;
    let mut found = Vec::new();
    let text = tree.read(OPERATIONS)?;
    let named = named(&text);
    if named.is_empty() {
        found
            .push(Finding::new(OPERATIONS, format!("names no metric: a paragraph begins with \"{LISTED}\"")));
    }
    for (line, span) in named {
        for name in
            metric_names::series(&span).into_iter().filter(|name| !metric_names::is_known(&known, name))
        {
            found.push(Finding::at_line(OPERATIONS, line, format!("there is no metric {name}")));
        }
    }
    found.extend(labels(tree)?);
    Ok(found)
}

/// Code spans of the table of alerts and of paragraphs that list metrics.
fn named(text: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    for row in markdown::table_rows(text, &["when"]) {
        out.extend(markdown::code_spans(&row.cells[0]).into_iter().map(|span| (row.line, span.to_owned())));
    }
    let mut is_list = false;
    for (index, line) in text.lines().enumerate() {
        is_list = line.starts_with(LISTED) || is_list && !line.is_empty();
        let spans =
            markdown::code_spans(line).into_iter().filter(|span| is_list && !span.contains(['/', '.']));
        out.extend(spans.map(|span| (index + 1, span.to_owned())));
    }
    out
}

/// The labels of each metric in code are those of its comment in the catalog: "Labels: `a`, `b` (`value`)."
fn labels(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let catalog = rust_tokens::tokens(&tree.read(metric_names::CATALOG)?)?;
    let constants = metric_names::constants(&catalog);
    let said = said_labels(&tree.read(metric_names::CATALOG)?);
    let mut found = Vec::new();
    for path in tree.files()?.iter().filter(|path| path.ends_with(".rs") && !path.starts_with("crates/dev/"))
    {
        if is_test_path(path) || path == metric_names::CATALOG {
            continue;
        }
        for (name, line, used) in used_labels(&rust_tokens::tokens(&tree.read(path)?)?, &constants) {
            let wanted = said.get(&name).cloned().unwrap_or_default();
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

/// Metric → labels, from the comment above its constant.
fn said_labels(source: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut out = BTreeMap::new();
    let mut labels = BTreeSet::new();
    for line in source.lines() {
        if let Some((_, list)) = line.split_once("Labels: ") {
            let mut outside = String::new();
            let mut depth = 0_u32;
            for c in list.chars() {
                match c {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ if depth == 0 => outside.push(c),
                    _ => {}
                }
            }
            labels = markdown::code_spans(&outside).into_iter().map(str::to_owned).collect();
        } else if line.starts_with("pub const") {
            let name = line.split('"').nth(1).unwrap_or_default().to_owned();
            out.insert(name, std::mem::take(&mut labels));
        }
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
