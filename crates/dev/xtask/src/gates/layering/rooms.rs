//! The rooms of a domain crate: pure models, SQL in the store, every edge between rooms as the table says
//! (`room_table`), other domains through their `api`.

use super::room_table::{Place, ROOT, allowed, may_use, place_of_file, place_of_path};
use crate::gates::Finding;
use crate::manifest::Crate;
use crate::rust_tokens::{self, Kind, Token, names_crate, path_heads, paths_from};
use crate::tree::{Tree, is_test_path};

/// Platform crates whose job is SQL.
const SQL_CRATES: [&str; 3] = ["pg", "bus", "saga"];

pub fn check(tree: &Tree, crates: &[Crate]) -> anyhow::Result<Vec<Finding>> {
    let mut found = Vec::new();
    // Tests and tools may look anywhere: they prove things about the inside.
    for member in crates.iter().filter(|member| member.group != "dev") {
        let src = format!("{}/src/", member.dir);
        for path in member.sources(tree)? {
            let Some(inside) = path.strip_prefix(&src).filter(|_| !is_test_path(path)) else { continue };
            let tokens = match rust_tokens::tokens(&tree.read(path)?) {
                Ok(tokens) => tokens,
                Err(error) => {
                    found.push(Finding::new(path, format!("{error:#}")));
                    continue;
                }
            };
            if member.group != "domains" {
                check_sql(path, SQL_CRATES.contains(&member.name.as_str()), &tokens, &mut found);
                continue;
            }
            let Some(place) = place_of_file(&member.name, inside) else {
                let message = format!("no room of {}: name it in xtask's room table", member.name);
                found.push(Finding::new(path, message));
                continue;
            };
            check_sql(path, place.room == "store", &tokens, &mut found);
            check_purity(path, place.room, &tokens, &mut found);
            check_edges(path, (&member.name, inside, place), &tokens, &mut found);
            check_reexports(path, (&member.name, inside, place), &tokens, &mut found);
            check_other_domains(path, member, crates, &tokens, &mut found);
        }
    }
    Ok(found)
}

/// The tokens outside tests, each with where it stands.
fn product(tokens: &[Token]) -> impl Iterator<Item = (usize, &Token)> {
    tokens.iter().enumerate().filter(|(_, token)| !token.in_test)
}

fn check_sql(path: &str, writes_sql: bool, tokens: &[Token], found: &mut Vec<Finding>) {
    let is_query = |head: &str| head.starts_with("query") || matches!(head, "raw_sql" | "QueryBuilder");
    for (at, token) in product(tokens) {
        if !writes_sql && token.is("sqlx") && path_heads(tokens, at).into_iter().any(is_query) {
            found.push(Finding::at_line(path, token.line, "SQL belongs to store/"));
        }
    }
}

fn check_purity(path: &str, room: &str, tokens: &[Token], found: &mut Vec<Finding>) {
    for (at, token) in product(tokens) {
        let mut report = |message: &str| found.push(Finding::at_line(path, token.line, message));
        if room == "model" && token.is("async") {
            report("a model is pure: no async");
        }
        if room == "model" && token.is("sqlx") {
            report("a model is pure: it must not mention sqlx");
        }
        if room == "model" && names_crate(tokens, at, "pg") {
            report("a model is pure: it must not use pg");
        }
        if room == "http" && token.is("sqlx") {
            report("http must not mention sqlx: go through service");
        }
    }
}

/// Every path that begins with `crate`, `self` or `super` leads to a room that this one may use.
fn check_edges(
    path: &str,
    (domain, inside, from): (&str, &str, Place<'_>),
    tokens: &[Token],
    found: &mut Vec<Finding>,
) {
    let file = module_names(inside);
    // Modules that stand in the file itself, each with the depth of its braces.
    let mut inline: Vec<(&str, usize)> = Vec::new();
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match &token.kind {
            Kind::Open(_) => {
                depth += 1;
                if let Some(name) = module_opened(tokens, at) {
                    inline.push((name, depth));
                }
            }
            Kind::Close(_) => {
                inline.retain(|(_, opened)| *opened < depth);
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
        if token.in_test {
            continue;
        }
        let renamed = tokens.get(at + 1).is_some_and(|next| next.is("as"));
        if renamed && at > 0 && tokens[at - 1].is("use") && (token.is("crate") || token.is("super")) {
            found.push(Finding::at_line(path, token.line, "name the room: a renamed crate hides its edges"));
        }
        if !begins_own_path(tokens, at) {
            continue;
        }
        let here = file.iter().copied().chain(inline.iter().map(|(name, _)| *name));
        let here: Vec<&str> = here.collect();
        for named in paths_from(tokens, at) {
            let to = place_of_path(domain, &resolve(&here, &named));
            if !may_use(domain, from, to) {
                let mut targets = allowed(domain, from.room);
                targets.retain(|target| *target != ROOT);
                let message = format!("{from} must not use {to}; it may use: {}", targets.join(", "));
                found.push(Finding::at_line(path, token.line, message));
            }
        }
    }
}

/// Only types of the store may be shown by other rooms: a function of it that is shown is a use case without a service.
fn check_reexports(
    path: &str,
    (domain, inside, from): (&str, &str, Place<'_>),
    tokens: &[Token],
    found: &mut Vec<Finding>,
) {
    if from.room == "store" {
        return;
    }
    let here = module_names(inside);
    // What this file imported of the store, which an import can begin with as well as with `crate`.
    let mut imported: Vec<&str> = Vec::new();
    for (at, _) in product(tokens).filter(|(at, _)| *at > 0 && tokens[at - 1].is("use")) {
        for named in paths_from(tokens, at) {
            let shown = named.iter().rfind(|name| **name != "self");
            let Some((first, last)) = named.first().zip(shown) else { continue };
            let own = ["crate", "self", "super"].contains(first);
            let bare = *first == "store" || imported.contains(first);
            let of_store = own && place_of_path(domain, &resolve(&here, &named)).room == "store";
            if !(bare || of_store) {
                continue;
            }
            if !is_public(tokens, at - 1) {
                imported.push(last);
            } else if !last.starts_with(|letter: char| letter.is_ascii_uppercase()) {
                let message = format!("{from} must not show {} of the store: only types", named.join("::"));
                found.push(Finding::at_line(path, tokens[at].line, message));
            }
        }
    }
}

/// Whether `pub` or `pub(…)` stands before `at`.
fn is_public(tokens: &[Token], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|index| &tokens[index]);
    match before(1).map(|token| &token.kind) {
        Some(Kind::Close(')')) => {
            let open = tokens[..at].iter().rposition(|token| token.kind == Kind::Open('('));
            open.and_then(|open| open.checked_sub(1)).is_some_and(|word| tokens[word].is("pub"))
        }
        _ => before(1).is_some_and(|token| token.is("pub")),
    }
}

/// The modules that lead to a file below `src/`.
fn module_names(inside: &str) -> Vec<&str> {
    let names = inside.trim_end_matches(".rs").split('/');
    names.filter(|name| !matches!(*name, "mod" | "lib" | "main")).collect()
}

/// The name of the module whose `{` is at `at`.
fn module_opened(tokens: &[Token], at: usize) -> Option<&str> {
    let name = tokens[at.checked_sub(1)?].ident()?;
    (tokens[at].kind == Kind::Open('{') && tokens[at.checked_sub(2)?].is("mod")).then_some(name)
}

/// Whether a path into this crate begins at `at`.
fn begins_own_path(tokens: &[Token], at: usize) -> bool {
    let leads = ["crate", "self", "super"].iter().any(|word| tokens[at].is(word));
    let inside_path = at > 0 && tokens[at - 1].kind == Kind::PathSep;
    leads && !inside_path && tokens.get(at + 1).is_some_and(|next| next.kind == Kind::PathSep)
}

/// The path from the root of the crate on.
fn resolve<'a>(here: &[&'a str], named: &[&'a str]) -> Vec<&'a str> {
    let mut path = here.to_vec();
    for name in named {
        match *name {
            "crate" => path.clear(),
            "self" => {}
            "super" => drop(path.pop()),
            other => path.push(other),
        }
    }
    path
}

fn check_other_domains(
    path: &str,
    member: &Crate,
    crates: &[Crate],
    tokens: &[Token],
    found: &mut Vec<Finding>,
) {
    // Only real dependencies: a module of this crate may well be called like another domain.
    let is_domain =
        |package: &str| crates.iter().any(|other| other.group == "domains" && other.name == package);
    let others = member.dependencies().into_iter().filter(|dependency| is_domain(&dependency.package));
    let others: Vec<String> = others.map(|dependency| dependency.name.replace('-', "_")).collect();
    for (at, token) in product(tokens) {
        for other in others.iter().filter(|other| names_crate(tokens, at, other)) {
            let heads = path_heads(tokens, at);
            if heads.is_empty() || heads.iter().any(|head| *head != "api") {
                let message = format!("use {other}::api: the rest of {other} is its own");
                found.push(Finding::at_line(path, token.line, message));
            }
        }
    }
}
