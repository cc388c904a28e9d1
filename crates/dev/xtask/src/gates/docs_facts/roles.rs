//! Roles of the server program: the tables of roles, and every "eight roles" in the text.

use std::collections::BTreeSet;

use anyhow::Context;

use super::{ARCHITECTURE, OPERATIONS, markdown};
use crate::gates::Finding;
use crate::rust_tokens::{self, Kind};
use crate::tree::Tree;

pub const ROLES: &str = "crates/server/gpuaasd/src/roles.rs";
const NUMBERS: [&str; 13] =
    ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let roles = names(tree)?;
    let mut found = Vec::new();
    for document in [ARCHITECTURE, OPERATIONS] {
        let text = tree.read(document)?;
        let rows = markdown::table_rows(&text, &["role"]);
        let listed: BTreeSet<&str> =
            rows.iter().flat_map(|row| markdown::code_spans(&row.cells[0])).collect();
        for role in roles.iter().filter(|role| !listed.contains(role.as_str())) {
            found.push(Finding::new(document, format!("the table of roles lacks {role:?}")));
        }
        for role in listed.iter().filter(|role| !roles.contains(**role)) {
            found.push(Finding::new(document, format!("there is no role {role:?}")));
        }
        for (index, line) in text.lines().enumerate() {
            for number in counted_roles(line).filter(|number| *number != roles.len()) {
                let message = format!("there are {} roles, not {number}", roles.len());
                found.push(Finding::at_line(document, index + 1, message));
            }
        }
    }
    Ok(found)
}

/// The strings of `Role::name`: `Self::Api => "api"`.
fn names(tree: &Tree) -> anyhow::Result<BTreeSet<String>> {
    let tokens = rust_tokens::tokens(&tree.read(ROLES)?)?;
    let arms = tokens.windows(3).filter(|window| {
        window[0].kind == Kind::Punct('=') && window[1].kind == Kind::Punct('>') && !window[2].in_test
    });
    let names: BTreeSet<String> = arms.filter_map(|window| window[2].string()).map(str::to_owned).collect();
    (!names.is_empty()).then_some(names).with_context(|| format!("{ROLES} names no role"))
}

/// `n` of each "n roles", as a word or in digits.
fn counted_roles(line: &str) -> impl Iterator<Item = usize> {
    let words: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let number = |word: &str| {
        let lower = word.to_lowercase();
        NUMBERS.iter().position(|name| *name == lower).or_else(|| lower.parse().ok())
    };
    let counted: Vec<usize> =
        words.windows(2).filter(|pair| pair[1] == "roles").filter_map(|pair| number(pair[0])).collect();
    counted.into_iter()
}
