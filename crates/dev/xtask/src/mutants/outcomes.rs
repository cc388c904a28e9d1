//! What cargo-mutants wrote about a module.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

pub const HEADER: &str = "module               mutants  viable  caught  timeouts  missed  caught %  seconds";

/// A mutant that every test passed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missed {
    /// Below the crate's `src`.
    pub file: String,
    /// What was changed, without the line: lines move.
    pub mutant: String,
    pub line: u64,
}

#[derive(Debug, Default)]
pub struct Outcomes {
    /// With those that hung: that was noticed too.
    pub caught: usize,
    pub timeouts: usize,
    /// Does not build.
    pub unviable: usize,
    pub missed: Vec<Missed>,
}

impl Outcomes {
    fn viable(&self) -> usize {
        self.caught + self.missed.len()
    }

    /// Of the mutants that build, rounded down. Where none builds, nothing was tested.
    pub fn caught_percent(&self) -> usize {
        (self.caught * 100).checked_div(self.viable()).unwrap_or(0)
    }

    pub fn row(&self, name: &str, took: Duration) -> String {
        format!(
            "{name:<19}  {:>7}  {:>6}  {:>6}  {:>8}  {:>6}  {:>8}  {:>7}",
            self.viable() + self.unviable,
            self.viable(),
            self.caught,
            self.timeouts,
            self.missed.len(),
            self.caught_percent(),
            took.as_secs()
        )
    }
}

pub fn read(path: &Path) -> anyhow::Result<Outcomes> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    parse(&serde_json::from_str(&text)?)
}

fn parse(document: &Value) -> anyhow::Result<Outcomes> {
    let mut out = Outcomes::default();
    for outcome in document["outcomes"].as_array().context("no outcomes")? {
        let summary = outcome["summary"].as_str().unwrap_or_default();
        let mutant = &outcome["scenario"]["Mutant"];
        if mutant.is_null() {
            if summary != "Success" {
                bail!("the tests fail without any mutant");
            }
            continue;
        }
        match summary {
            "CaughtMutant" => out.caught += 1,
            "Timeout" => (out.caught, out.timeouts) = (out.caught + 1, out.timeouts + 1),
            "Unviable" => out.unviable += 1,
            "MissedMutant" => out.missed.push(missed(mutant)?),
            other => bail!("a mutant ended as {other:?}"),
        }
    }
    Ok(out)
}

/// The name is `<package>/src/<file>:<line>:<column>: <what was changed>`.
fn missed(mutant: &Value) -> anyhow::Result<Missed> {
    let name = mutant["name"].as_str().context("a mutant without a name")?;
    let parts: Vec<&str> = name.splitn(4, ':').collect();
    let [path, line, _, text] = parts[..] else { bail!("the name of a mutant cannot be read: {name}") };
    let (_, file) = path.split_once("/src/").with_context(|| format!("{path} is not below src"))?;
    Ok(Missed { file: file.to_owned(), mutant: text.trim().to_owned(), line: line.parse()? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mutant(summary: &str) -> Value {
        let name = "placement/src/model/choose.rs:12:7: replace <impl Ord for A>::cmp -> Ordering with Default::default()";
        json!({ "scenario": { "Mutant": { "name": name } }, "summary": summary })
    }

    fn baseline(summary: &str) -> Value {
        json!({ "scenario": "Baseline", "summary": summary })
    }

    #[test]
    fn a_survivor_is_named_by_its_file_and_change() {
        let [caught, hung, unviable, missed] =
            ["CaughtMutant", "Timeout", "Unviable", "MissedMutant"].map(mutant);
        let all = [baseline("Success"), caught, hung, unviable, missed];
        let outcomes = parse(&json!({ "outcomes": all })).unwrap();
        assert_eq!((outcomes.caught, outcomes.timeouts, outcomes.unviable), (2, 1, 1));
        assert_eq!(outcomes.caught_percent(), 66);
        let [missed] = &outcomes.missed[..] else { panic!("one was missed") };
        assert_eq!((missed.file.as_str(), missed.line), ("model/choose.rs", 12));
        assert_eq!(missed.mutant, "replace <impl Ord for A>::cmp -> Ordering with Default::default()");
    }

    #[test]
    fn where_no_mutant_builds_nothing_was_caught() {
        let outcomes = parse(&json!({ "outcomes": [baseline("Success"), mutant("Unviable")] })).unwrap();
        assert_eq!(outcomes.caught_percent(), 0);
    }

    #[test]
    fn tests_that_fail_without_a_mutant_catch_nothing() {
        assert!(parse(&json!({ "outcomes": [baseline("Failure")] })).is_err());
        assert!(parse(&json!({ "outcomes": [baseline("Success"), mutant("Failure")] })).is_err());
    }
}
