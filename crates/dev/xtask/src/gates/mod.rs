//! The gates: one file each, all listed in [`registry`].

mod advisories;
mod alerts;
mod clippy;
mod cost_formula;
mod dashboards;
mod docs_facts;
mod docs_links;
mod drift;
mod duplicates;
mod event_types;
mod explicit_columns;
mod file_size;
mod format;
mod function_names;
mod layering;
mod licences;
mod lifecycles;
mod make_targets;
mod metric_names;
mod migration_lint;
mod migrations_apply;
mod named_values;
mod openapi_breaking;
mod policy_keys;
mod released_statements;
mod role_matrix;
mod schema_code;
mod secrets;
mod shell_scripts;
mod sqlx_cache;
mod table_classes;
mod test_binaries;
mod test_rows;
mod typed_failures;
mod unsafe_code;
mod unused_dependencies;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use crate::generate;
use crate::tree::Tree;

/// One thing that is wrong: where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub at: String,
    pub message: String,
}

impl Finding {
    pub fn new(at: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding { at: at.into(), message: message.into() }
    }

    pub fn at_line(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding::new(format!("{path}:{line}"), message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)
    }
}

/// A rule about the tree that `make check` enforces.
pub trait Gate {
    fn name(&self) -> &'static str;

    /// What is true when the gate passes, in one line.
    fn holds(&self) -> &'static str;

    /// Everything that is wrong. An error means that the gate could not look, and counts as a finding.
    fn check(&self, tree: &Tree) -> anyhow::Result<Vec<Finding>>;

    /// Trees that prove the gate: without them it does not compile for the tests.
    #[cfg(test)]
    fn examples(&self) -> tests::Examples;
}

/// Every gate, the cheap ones first.
pub fn registry() -> Vec<Box<dyn Gate>> {
    let mut gates: Vec<Box<dyn Gate>> = vec![
        Box::new(format::Format),
        Box::new(layering::Layering),
        Box::new(unsafe_code::UnsafeCode),
        Box::new(typed_failures::TypedFailures),
        Box::new(named_values::NamedValues),
        Box::new(policy_keys::PolicyKeys),
        Box::new(event_types::EventTypes),
        Box::new(function_names::FunctionNames),
        Box::new(unused_dependencies::UnusedDependencies),
        Box::new(licences::Licences),
        Box::new(duplicates::Duplicates),
        Box::new(advisories::Advisories),
        Box::new(file_size::FileSize),
        Box::new(test_binaries::TestBinaries),
        Box::new(test_rows::TestRows),
        Box::new(secrets::Secrets),
        Box::new(docs_links::DocsLinks),
        Box::new(docs_facts::DocsFacts),
        Box::new(metric_names::MetricNames),
        Box::new(alerts::Alerts),
        Box::new(dashboards::Dashboards),
        Box::new(shell_scripts::ShellScripts),
        Box::new(make_targets::MakeTargets),
        Box::new(openapi_breaking::OpenapiBreaking),
        Box::new(role_matrix::RoleMatrix),
        Box::new(explicit_columns::ExplicitColumns),
        Box::new(cost_formula::CostFormula),
        Box::new(migration_lint::MigrationLint),
        Box::new(migrations_apply::MigrationsApply),
        Box::new(schema_code::SchemaCode),
        Box::new(table_classes::TableClasses),
        Box::new(lifecycles::Lifecycles),
        Box::new(sqlx_cache::SqlxCache),
        Box::new(released_statements::ReleasedStatements),
    ];
    for group in generate::Group::ALL {
        gates.push(Box::new(drift::Drift { group }));
    }
    gates.push(Box::new(clippy::Clippy));
    gates
}

/// Runs one gate; what it could not check is a finding too.
pub fn findings(gate: &dyn Gate, tree: &Tree) -> Vec<Finding> {
    gate.check(tree).unwrap_or_else(|error| vec![Finding::new("could not check", format!("{error:#}"))])
}

/// The exceptions in a table of a file, `"what" = "why"`, none of them used yet. A list may only shrink: one that is longer
/// than `most`, or names no reason, is a finding.
fn exceptions(
    tree: &Tree,
    file: &str,
    table: &str,
    most: usize,
    found: &mut Vec<Finding>,
) -> anyhow::Result<BTreeMap<String, bool>> {
    let mut exceptions = BTreeMap::new();
    if !tree.exists(file) {
        return Ok(exceptions);
    }
    let all = tree.toml(file)?;
    for (what, why) in all.get(table).and_then(toml::Value::as_table).into_iter().flatten() {
        if why.as_str().is_none_or(|why| why.trim().is_empty()) {
            found.push(Finding::new(file, format!("{what} has no reason in {table}")));
        }
        exceptions.insert(what.clone(), false);
    }
    if exceptions.len() > most {
        let text = format!("{table} may only shrink: it has {} entries, and had {most}", exceptions.len());
        found.push(Finding::new(file, text));
    }
    Ok(exceptions)
}
