//! The table of crates against the graph that the gate `layering` holds.

use std::collections::BTreeSet;

use super::{ARCHITECTURE, markdown};
use crate::gates::{Finding, layering};
use crate::manifest;
use crate::tree::Tree;

pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let rows = markdown::table_rows(&tree.read(ARCHITECTURE)?, &["crate", "may depend on"]);
    let crates = manifest::crates(tree)?;
    let mut found = Vec::new();
    let mut listed = BTreeSet::new();
    for row in &rows {
        for name in markdown::code_spans(&row.cells[0]).into_iter().filter(|name| !name.contains('/')) {
            listed.insert(name.to_owned());
            let exists = crates.iter().any(|member| member.name == name);
            let said = row.cells.get(1).map(|cell| dependencies(cell)).unwrap_or_default();
            match layering::allowed_dependencies(name) {
                Some(allowed) if exists && allowed == said => {}
                Some(allowed) if exists => {
                    let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
                    let message = format!("{name} may depend on: {}", allowed.join(", "));
                    found.push(Finding::at_line(ARCHITECTURE, row.line, message));
                }
                _ => {
                    found.push(Finding::at_line(ARCHITECTURE, row.line, format!("there is no crate {name}")))
                }
            }
        }
    }
    for member in crates.iter().filter(|member| member.group != "dev" && !listed.contains(&member.name)) {
        found.push(Finding::new(ARCHITECTURE, format!("the table of crates lacks {}", member.name)));
    }
    Ok(found)
}

/// "base, `pg`; more words" names two.
fn dependencies(cell: &str) -> BTreeSet<String> {
    let names = cell.split([';', ':']).next().unwrap_or_default();
    let names = names.split(',').map(|name| name.trim().trim_matches('`'));
    names.filter(|name| *name != "nothing of ours").map(str::to_owned).collect()
}
