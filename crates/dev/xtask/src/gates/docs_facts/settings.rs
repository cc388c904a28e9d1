//! Settings that the server reads against the table of settings.

use std::collections::BTreeSet;

use super::{OPERATIONS, markdown};
use crate::gates::Finding;
use crate::rust_tokens::{self, Kind, Token};
use crate::tree::{Tree, is_test_path};

const CONFIG: &str = "crates/server/gpuaasd/src/config/";
/// Methods of the reader that take a key.
const READS: [&str; 7] = ["get", "optional", "number", "path", "secret", "list", "count"];

pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let mut read = BTreeSet::new();
    for path in tree.files()?.iter().filter(|path| path.starts_with(CONFIG) && !is_test_path(path)) {
        read.extend(keys(&rust_tokens::tokens(&tree.read(path)?)?));
    }
    let documented = documented(&tree.read(OPERATIONS)?);
    let mut found = Vec::new();
    for key in read.iter().filter(|key| !documented.contains(*key)) {
        found.push(Finding::new(OPERATIONS, format!("the table of settings lacks {key}")));
    }
    for key in documented.iter().filter(|key| !read.contains(*key)) {
        found.push(Finding::new(OPERATIONS, format!("no setting {key} is read")));
    }
    if read.is_empty() {
        found.push(Finding::new(CONFIG, "reads no setting"));
    }
    Ok(found)
}

/// `r.get("server.listen", …)`, also `r.optional::<Url>("…")`.
fn keys(tokens: &[Token]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_read = token.ident().is_some_and(|ident| READS.contains(&ident))
            && at > 0
            && tokens[at - 1].kind == Kind::Punct('.')
            && !token.in_test;
        if !is_read {
            continue;
        }
        let argument =
            tokens[at + 1..].iter().take(6).skip_while(|token| token.kind != Kind::Open('(')).nth(1);
        let key = argument.and_then(Token::string).filter(|text| text.contains('.'));
        out.extend(key.map(str::to_owned));
    }
    out
}

/// First cells; `.port` after `notify.smtp.host` means `notify.smtp.port`, and `[[a.b]]` is the list `a.b`.
fn documented(text: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for row in markdown::table_rows(text, &["setting"]) {
        let mut before = String::new();
        for span in markdown::code_spans(&row.cells[0]) {
            let key = match (span.strip_prefix('.'), before.rsplit_once('.')) {
                (Some(last), Some((parent, _))) => format!("{parent}.{last}"),
                _ => span.trim_matches(['[', ']']).to_owned(),
            };
            before.clone_from(&key);
            out.insert(key);
        }
    }
    out
}
