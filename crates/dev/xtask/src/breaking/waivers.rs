//! `openapi/waivers.toml`: agreed growth of output enums.
//!
//! ```toml
//! [[waiver]]
//! at = "#/components/schemas/Project/state"
//! value = "archived"
//! reason = "clients were told to treat unknown states as inactive"
//! ```

use anyhow::Context;
use toml::{Table, Value};

use super::Break;

#[derive(Debug, Clone)]
pub struct Waiver {
    pub at: String,
    pub value: String,
}

#[derive(Debug, Default)]
pub struct Waivers(Vec<Waiver>);

impl Waivers {
    pub fn parse(table: &Table) -> anyhow::Result<Waivers> {
        let mut out = Vec::new();
        for entry in table.get("waiver").and_then(Value::as_array).into_iter().flatten() {
            let text = |key: &str| {
                let text = entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
                text.map(str::to_owned).with_context(|| format!("a waiver has no {key}"))
            };
            text("reason")?;
            out.push(Waiver { at: text("at")?, value: text("value")? });
        }
        Ok(Waivers(out))
    }

    /// The breaks that stand, and the waivers that waive nothing.
    pub fn apply(&self, breaks: Vec<Break>) -> (Vec<Break>, Vec<Waiver>) {
        let waives = |waiver: &Waiver, broken: &Break| {
            broken.kind.may_be_waived()
                && waiver.at == broken.at
                && waiver.value == broken.detail.trim_matches('"')
        };
        let unused = self.0.iter().filter(|waiver| !breaks.iter().any(|broken| waives(waiver, broken)));
        let unused = unused.cloned().collect();
        let stands = |broken: &Break| !self.0.iter().any(|waiver| waives(waiver, broken));
        (breaks.into_iter().filter(stands).collect(), unused)
    }
}
