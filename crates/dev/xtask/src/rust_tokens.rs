//! Rust source as a flat list of tokens with line numbers.
//!
//! The gates that look for words (`unsafe`, `async`, a crate's name) look at tokens, not at text, so that
//! comments and strings do not count, and not at a syntax tree, so that the inside of macros does.

use anyhow::anyhow;
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Ident(String),
    /// `::`
    PathSep,
    Punct(char),
    /// As written, with its quotes.
    Literal(String),
    Open(char),
    Close(char),
}

#[derive(Debug, Clone)]
pub struct Token {
    pub kind: Kind,
    pub line: usize,
    /// Inside an item marked `#[cfg(test)]` or `#[test]`.
    pub in_test: bool,
}

impl Token {
    pub fn is(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Ident(ident) if ident == word)
    }

    pub fn ident(&self) -> Option<&str> {
        match &self.kind {
            Kind::Ident(ident) => Some(ident),
            _ => None,
        }
    }

    /// The content of a plain string literal.
    pub fn string(&self) -> Option<&str> {
        match &self.kind {
            Kind::Literal(text) => text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')),
            _ => None,
        }
    }
}

/// The tokens of one source file.
pub fn tokens(source: &str) -> anyhow::Result<Vec<Token>> {
    let stream: TokenStream =
        source.parse().map_err(|error: proc_macro2::LexError| anyhow!("not Rust: {error}"))?;
    let mut out = Vec::new();
    flatten(stream, false, &mut out);
    Ok(out)
}

/// Whether the tokens from `at` name the external crate `name`: `name::…`, `::name`, `use name`, `extern crate name`.
pub fn names_crate(tokens: &[Token], at: usize, name: &str) -> bool {
    if !tokens[at].is(name) {
        return false;
    }
    let kind_before = |back: usize| at.checked_sub(back).map(|index| &tokens[index].kind);
    let before = kind_before(1);
    if before == Some(&Kind::PathSep) {
        // `a::name` is a module of a; a leading `::name` is the crate.
        return !matches!(kind_before(2), Some(Kind::Ident(_) | Kind::Punct('>')));
    }
    if before == Some(&Kind::Punct('.')) || is_in_import_group(tokens, at) {
        return false;
    }
    let follows = tokens.get(at + 1).is_some_and(|next| next.kind == Kind::PathSep);
    let imported = at > 0 && (tokens[at - 1].is("use") || tokens[at - 1].is("crate"));
    follows || imported
}

/// Whether `tokens[at]` stands in the `{…}` of a longer path, as `name` in `use a::{name::B}`.
fn is_in_import_group(tokens: &[Token], at: usize) -> bool {
    let mut depth = 0_usize;
    for index in (1..at).rev() {
        match tokens[index].kind {
            Kind::Close(_) => depth += 1,
            Kind::Open(_) if depth > 0 => depth -= 1,
            Kind::Open(_) => return tokens[index - 1].kind == Kind::PathSep,
            _ => {}
        }
    }
    false
}

/// The first identifiers of what follows `tokens[at]` `::`: one for a path, several for a `{…}` group.
pub fn path_heads(tokens: &[Token], at: usize) -> Vec<&str> {
    if tokens.get(at + 1).is_none_or(|token| token.kind != Kind::PathSep) {
        return Vec::new();
    }
    match tokens.get(at + 2).map(|token| &token.kind) {
        Some(Kind::Ident(head)) => vec![head],
        Some(Kind::Punct('*')) => vec!["*"],
        Some(Kind::Open('{')) => {
            let mut heads = Vec::new();
            let mut depth = 1_usize;
            let mut expect_head = true;
            for token in &tokens[at + 3..] {
                match &token.kind {
                    Kind::Open(_) => depth += 1,
                    Kind::Close(_) if depth == 1 => break,
                    Kind::Close(_) => depth -= 1,
                    Kind::Punct(',') if depth == 1 => expect_head = true,
                    Kind::Ident(head) if depth == 1 && expect_head => {
                        heads.push(head.as_str());
                        expect_head = false;
                    }
                    _ => {}
                }
            }
            heads
        }
        _ => Vec::new(),
    }
}

/// Every path that begins at `tokens[at]`, name by name: one, or as many as the groups of an import name.
pub fn paths_from(tokens: &[Token], at: usize) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    path_read(tokens, at, &mut Vec::new(), &mut found);
    found
}

/// Reads one path, or the tree of an import, and answers where it ends.
fn path_read<'a>(
    tokens: &'a [Token],
    mut at: usize,
    before: &mut Vec<&'a str>,
    found: &mut Vec<Vec<&'a str>>,
) -> usize {
    let depth = before.len();
    loop {
        match tokens.get(at).map(|token| &token.kind) {
            Some(Kind::Ident(name)) => before.push(name),
            Some(Kind::Punct('*')) => before.push("*"),
            Some(Kind::Open('{')) => {
                at += 1;
                while tokens.get(at).is_some_and(|token| !matches!(token.kind, Kind::Close(_))) {
                    at = path_read(tokens, at, before, found);
                    // What follows a path in a group: a new name for it, a comma.
                    while tokens
                        .get(at)
                        .is_some_and(|token| !matches!(token.kind, Kind::Punct(',') | Kind::Close(_)))
                    {
                        at += 1;
                    }
                    at += usize::from(tokens.get(at).is_some_and(|token| token.kind == Kind::Punct(',')));
                }
                before.truncate(depth);
                return at + 1;
            }
            _ => break,
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token.kind != Kind::PathSep) {
            break;
        }
        at += 1;
    }
    found.push(before.clone());
    before.truncate(depth);
    at
}

fn flatten(stream: TokenStream, in_test: bool, out: &mut Vec<Token>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut item_is_test = false;
    let mut rest_is_test = in_test;
    let mut index = 0;
    while index < trees.len() {
        let tree = &trees[index];
        let line = tree.span().start().line;
        if starts_test_attribute(&trees[index..], false) {
            item_is_test = true;
        } else if starts_test_attribute(&trees[index..], true) {
            rest_is_test = true;
        }
        let in_test = rest_is_test || item_is_test;
        let mut push = |kind| out.push(Token { kind, line, in_test });
        match tree {
            TokenTree::Ident(ident) => push(Kind::Ident(ident.to_string())),
            TokenTree::Literal(literal) => push(Kind::Literal(literal.to_string())),
            TokenTree::Punct(punct) => {
                let joined = punct.as_char() == ':' && punct.spacing() == Spacing::Joint;
                let doubled =
                    matches!(trees.get(index + 1), Some(TokenTree::Punct(next)) if next.as_char() == ':');
                if joined && doubled {
                    push(Kind::PathSep);
                    index += 1;
                } else {
                    push(Kind::Punct(punct.as_char()));
                }
                if punct.as_char() == ';' {
                    item_is_test = false;
                }
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ('{', '}'),
                    Delimiter::Bracket => ('[', ']'),
                    Delimiter::Parenthesis | Delimiter::None => ('(', ')'),
                };
                push(Kind::Open(open));
                flatten(group.stream(), in_test, out);
                out.push(Token { kind: Kind::Close(close), line: group.span_close().start().line, in_test });
                if group.delimiter() == Delimiter::Brace {
                    item_is_test = false;
                }
            }
        }
        index += 1;
    }
}

/// `#[cfg(test)]` or `#[test]` (`inner`: `#![cfg(test)]`) at the start of `trees`.
fn starts_test_attribute(trees: &[TokenTree], inner: bool) -> bool {
    let is_punct = |tree: Option<&TokenTree>, wanted: char| matches!(tree, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
    if !is_punct(trees.first(), '#') || is_punct(trees.get(1), '!') != inner {
        return false;
    }
    let Some(TokenTree::Group(group)) = trees.get(if inner { 2 } else { 1 }) else { return false };
    let text: String = group.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || (!inner && (text == "test" || text.starts_with("tokio::test")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_named(source: &str, name: &str) -> bool {
        let tokens = tokens(source).unwrap();
        (0..tokens.len()).any(|at| names_crate(&tokens, at, name))
    }

    #[test]
    fn a_crate_is_named_by_paths_and_imports_only() {
        for source in ["fn f() { http::get() }", "use http as h;", "type A = ::http::Uri;", "m!(http::Uri)"] {
            assert!(crate_named(source, "http"), "{source}");
        }
        for source in [
            "use crate::http::get;",
            "use axum::{a::b, http::get};",
            "fn f() { x.http() }",
            "// http::get\nconst A: &str = \"http::get\";",
        ] {
            assert!(!crate_named(source, "http"), "{source}");
        }
    }

    #[test]
    fn group_imports_give_the_head_of_every_entry() {
        let tokens = tokens("use identity::{api::{A, B}, model, self};").unwrap();
        assert_eq!(path_heads(&tokens, 1), ["api", "model", "self"]);
    }

    #[test]
    fn paths_are_read_whole_and_through_groups() {
        let tokens =
            tokens("use crate::{a::{b as c, d::*}, e::{self, f}, G,}; fn x() { super::h::<T>::new() }")
                .unwrap();
        let at = |word| tokens.iter().position(|token| token.is(word)).unwrap();
        let joined: Vec<String> =
            paths_from(&tokens, at("crate")).iter().map(|path| path.join("::")).collect();
        assert_eq!(joined, ["crate::a::b", "crate::a::d::*", "crate::e::self", "crate::e::f", "crate::G"]);
        assert_eq!(paths_from(&tokens, at("super")), [["super", "h"]]);
    }

    #[test]
    fn test_items_are_marked_and_end_with_their_item() {
        let tokens =
            tokens("#[cfg(test)] use a::b; fn c() {} #[cfg(test)] mod t { fn d() {} } fn e() {}").unwrap();
        let marked = |word: &str| tokens.iter().find(|token| token.is(word)).unwrap().in_test;
        assert_eq!([marked("b"), marked("c"), marked("d"), marked("e")], [true, false, true, false]);
    }

    #[test]
    fn tokens_know_their_line() {
        let tokens = tokens("fn a() {\n    b\n}\n").unwrap();
        assert_eq!(tokens.iter().find(|token| token.is("b")).unwrap().line, 2);
    }
}
