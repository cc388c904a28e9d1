//! Every operation of the public API has its block in the role matrix, and the matrix has no others.
//!
//! The test that drives the matrix proves each cell against a running server; this gate says in a moment, without
//! one, that an operation was added, removed or given another permission and nobody looked at who may call it.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde_json::Value;

use super::{Finding, Gate};
use crate::generate::PUBLIC_OPENAPI;
use crate::tree::Tree;

const MATRIX: &str = "crates/server/gpuaasd/tests/it/matrix.golden";
/// The other keys of a path item are not operations.
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
const ADVICE: &str = "run the matrix test with UPDATE_GOLDEN=1 and read what it changes";

pub struct RoleMatrix;

impl Gate for RoleMatrix {
    fn name(&self) -> &'static str {
        "role-matrix"
    }

    fn holds(&self) -> &'static str {
        "every operation in openapi/public.json has its block in matrix.golden, with the same scope, permission and audit"
    }

    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
        let operations = headers(&tree.json(PUBLIC_OPENAPI)?)?;
        let text = tree.read(MATRIX)?;
        let mut found = Vec::new();
        let mut seen = BTreeMap::new();
        for block in blocks(&text) {
            let Block { line, operation, header, rows } = block;
            match operations.get(operation) {
                None => {
                    let message = format!("{operation} is no operation of {PUBLIC_OPENAPI}: {ADVICE}");
                    found.push(Finding::at_line(MATRIX, line, message));
                }
                Some(expected) if expected != header => {
                    let message =
                        format!("{header:?} should be {expected:?} after {PUBLIC_OPENAPI}: {ADVICE}");
                    found.push(Finding::at_line(MATRIX, line, message));
                }
                Some(_) => {}
            }
            if rows == 0 {
                let message = format!("{operation} has no rows: {ADVICE}");
                found.push(Finding::at_line(MATRIX, line, message));
            }
            if let Some(first) = seen.insert(operation, line) {
                let message = format!("{operation} is there already, in line {first}: {ADVICE}");
                found.push(Finding::at_line(MATRIX, line, message));
            }
        }
        for operation in operations.keys().filter(|operation| !seen.contains_key(operation.as_str())) {
            found.push(Finding::new(MATRIX, format!("{operation} has no block: {ADVICE}")));
        }
        Ok(found)
    }

    #[cfg(test)]
    fn examples(&self) -> super::tests::Examples {
        examples::examples()
    }
}

/// The line that each operation must have, by its id.
fn headers(document: &Value) -> anyhow::Result<BTreeMap<String, String>> {
    let paths = document["paths"].as_object().context("the document has no paths")?;
    let mut out = BTreeMap::new();
    for (path, item) in paths {
        let operations = item.as_object().with_context(|| format!("{path} is no object"))?;
        for (method, operation) in operations.iter().filter(|(key, _)| METHODS.contains(&key.as_str())) {
            let method = method.to_uppercase();
            let text = |key: &str| operation[key].as_str();
            let id = text("operationId").with_context(|| format!("{method} {path} has no operationId"))?;
            let [scope, permission, audit] = ["x-gpuaas-scope", "x-gpuaas-permission", "x-gpuaas-audit"]
                .map(|key| text(key).unwrap_or("-"));
            let header = format!("{id} {method} {path} scope={scope} permission={permission} audit={audit}");
            if out.insert(id.to_owned(), header).is_some() {
                bail!("two operations have the id {id}");
            }
        }
    }
    if out.is_empty() {
        bail!("{PUBLIC_OPENAPI} has no operations");
    }
    Ok(out)
}

struct Block<'a> {
    line: usize,
    operation: &'a str,
    header: &'a str,
    /// Rows of roles below the header.
    rows: usize,
}

/// Headers are the lines without indentation that are neither empty nor a comment.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut out: Vec<Block<'_>> = Vec::new();
    for (index, header) in text.lines().enumerate() {
        if header.is_empty() || header.starts_with('#') {
            continue;
        }
        if header.starts_with(' ') {
            if let Some(block) = out.last_mut() {
                block.rows += 1;
            }
            continue;
        }
        let operation = header.split(' ').next().unwrap_or_default();
        out.push(Block { line: index + 1, operation, header, rows: 0 });
    }
    out
}

#[cfg(test)]
mod examples {
    use serde_json::json;

    use super::{MATRIX, PUBLIC_OPENAPI};
    use crate::gates::tests::Examples;
    use crate::tree::FixtureTree;

    const GET: &str =
        "thing_get GET /things/{id} scope=org permission=thing.read audit=-\n  own | allow: owner\n";
    const DELETE: &str = "thing_delete DELETE /things/{id} scope=org permission=thing.delete audit=thing.delete\n  own | allow: owner\n";

    pub(super) fn examples() -> Examples {
        let document = json!({ "paths": { "/things/{id}": {
            "parameters": [],
            "get": { "operationId": "thing_get", "x-gpuaas-scope": "org", "x-gpuaas-permission": "thing.read" },
            "delete": {
                "operationId": "thing_delete", "x-gpuaas-scope": "org",
                "x-gpuaas-permission": "thing.delete", "x-gpuaas-audit": "thing.delete"
            }
        } } });
        let mut widened = document.clone();
        widened["paths"]["/things/{id}"]["delete"]["x-gpuaas-permission"] = json!("thing.read");
        let mut unnamed = document.clone();
        unnamed["paths"]["/things/{id}"]["get"]["operationId"] = json!(null);
        let mut twice = document.clone();
        twice["paths"]["/other"]["get"] = json!({ "operationId": "thing_get" });
        let matrix = |blocks: &[&str]| format!("# Who may do what.\n\n{}", blocks.join("\n"));
        let good =
            FixtureTree::new(&[(PUBLIC_OPENAPI, &document.to_string()), (MATRIX, &matrix(&[GET, DELETE]))]);
        Examples::good(good)
            .bad("operation nobody looked at", "thing_delete has no block", |tree| {
                tree.with(MATRIX, matrix(&[GET]))
            })
            .bad("operation that is gone", "matrix.golden:9: thing_list is no operation", |tree| {
                tree.with(
                    MATRIX,
                    matrix(&[GET, DELETE, "thing_list GET /things scope=org\n  own | allow: owner\n"]),
                )
            })
            .bad("other permission", "permission=thing.read audit=thing.delete", |tree| {
                tree.with(PUBLIC_OPENAPI, widened.to_string())
            })
            .bad("other path", "should be \"thing_get GET /things/{id}", |tree| {
                tree.with(MATRIX, matrix(&[&GET.replace("/things/", "/thing/"), DELETE]))
            })
            .bad("block twice", "there already, in line 3", |tree| {
                tree.with(MATRIX, matrix(&[GET, DELETE, GET]))
            })
            .bad("block without rows", "thing_get has no rows", |tree| {
                tree.with(
                    MATRIX,
                    matrix(&["thing_get GET /things/{id} scope=org permission=thing.read audit=-\n", DELETE]),
                )
            })
            .bad("operation without a name", "has no operationId", |tree| {
                tree.with(PUBLIC_OPENAPI, unnamed.to_string())
            })
            .bad("two of one name", "two operations have the id thing_get", |tree| {
                tree.with(PUBLIC_OPENAPI, twice.to_string())
            })
            .bad("no operations", "has no operations", |tree| tree.with(PUBLIC_OPENAPI, "{\"paths\": {}}"))
            .bad("no matrix", "read crates/server/gpuaasd", |tree| tree.without(MATRIX))
    }
}
