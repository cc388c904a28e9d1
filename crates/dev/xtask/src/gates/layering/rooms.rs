//! The rooms of a domain crate: pure models, SQL in the store, thin handlers, other domains through their `api`.
//! A part of a domain that is large enough to stand alone (`issuer/`, say) has the same rooms inside.

use crate::gates::Finding;
use crate::manifest::Crate;
use crate::rust_tokens::{self, Kind, Token, names_crate, path_heads};
use crate::tree::{Tree, is_test_path};

const ROOMS: [&str; 5] = ["model", "store", "service", "http", "jobs"];
/// Platform crates whose job is SQL.
const SQL_CRATES: [&str; 3] = ["pg", "bus", "saga"];

pub fn check(tree: &Tree, crates: &[Crate]) -> anyhow::Result<Vec<Finding>> {
    let mut found = Vec::new();
    // Tests and tools may look anywhere: they prove things about the inside.
    for member in crates.iter().filter(|member| member.group != "dev") {
        let src = format!("{}/src/", member.dir);
        for path in member.sources(tree)? {
            let Some(inside) = path.strip_prefix(&src).filter(|_| !is_test_path(path)) else { continue };
            let mut parts = inside.split('/').map(|part| part.trim_end_matches(".rs"));
            let room = parts.find(|part| ROOMS.contains(part)).unwrap_or_default();
            match rust_tokens::tokens(&tree.read(path)?) {
                Ok(tokens) => check_file(path, room, member, crates, &tokens, &mut found),
                Err(error) => found.push(Finding::new(path, format!("{error:#}"))),
            }
        }
    }
    Ok(found)
}

fn check_file(
    path: &str,
    room: &str,
    member: &Crate,
    crates: &[Crate],
    tokens: &[Token],
    found: &mut Vec<Finding>,
) {
    let is_domain = member.group == "domains";
    let writes_sql = SQL_CRATES.contains(&member.name.as_str()) || (is_domain && room == "store");
    // Only real dependencies: a module of this crate may well be called like another domain.
    let is_other_domain =
        |package: &str| crates.iter().any(|other| other.group == "domains" && other.name == package);
    let others: Vec<String> = member
        .dependencies()
        .into_iter()
        .filter(|dependency| is_domain && is_other_domain(&dependency.package))
        .map(|dependency| dependency.name.replace('-', "_"))
        .collect();
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| !token.in_test) {
        let mut report = |message: String| found.push(Finding::at_line(path, token.line, message));
        if !writes_sql && token.is("sqlx") && path_heads(tokens, at).into_iter().any(is_query) {
            report("SQL belongs to store/".to_owned());
        }
        if !is_domain {
            continue;
        }
        if room == "model" {
            if token.is("async") {
                report("a model is pure: no async".to_owned());
            }
            if token.is("sqlx") {
                report("a model is pure: it must not mention sqlx".to_owned());
            }
            if names_crate(tokens, at, "pg") {
                report("a model is pure: it must not use pg".to_owned());
            }
        }
        if room == "http" {
            if token.is("sqlx") {
                report("http must not mention sqlx: go through service".to_owned());
            }
            if token.is("store") && !is_method_call(tokens, at) {
                report("http must not reach into store: go through service".to_owned());
            }
        }
        for other in &others {
            if names_crate(tokens, at, other) {
                let heads = path_heads(tokens, at);
                if heads.is_empty() || heads.iter().any(|head| *head != "api") {
                    report(format!("use {other}::api: the rest of {other} is its own"));
                }
            }
        }
    }
}

fn is_query(head: &str) -> bool {
    head.starts_with("query") || matches!(head, "raw_sql" | "QueryBuilder")
}

/// `x.store(…)`, which is what an atomic's write is called.
fn is_method_call(tokens: &[Token], at: usize) -> bool {
    let before = at.checked_sub(1).map(|index| &tokens[index].kind);
    before == Some(&Kind::Punct('.')) && tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Open('('))
}
