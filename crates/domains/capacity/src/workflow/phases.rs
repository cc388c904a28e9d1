//! Progress that the people of a project see: which step is done and how long it took, by name only.

use kernel::Failure;
use node_proto::{TaskKind, contract::Phase};
use pg::WriteTx;

use crate::{
    model::{allocation::Allocation, history::HistoryKind},
    store::progress::{self, Line},
};

/// A step is done.
pub async fn done(
    tx: &mut WriteTx,
    allocation: &Allocation,
    step: &str,
    evidence: &str,
) -> Result<(), Failure> {
    let line = Line { name: step.to_owned(), reason: evidence, duration_ms: None };
    progress::history(tx, allocation, HistoryKind::Phase, &[line]).await
}

/// The same, with what the node did for it. Names that are not in the catalog say nothing that anybody knows, and
/// stay out.
pub async fn reported<K: TaskKind>(
    tx: &mut WriteTx,
    allocation: &Allocation,
    step: &str,
    phases: &[Phase],
    evidence: &str,
) -> Result<(), Failure> {
    let known = |phase: &&Phase| K::TYPE.phases().contains(&phase.name.as_str());
    let mut lines: Vec<Line<'_>> = phases
        .iter()
        .filter(known)
        .filter_map(|phase| {
            let duration_ms = i64::try_from(phase.duration_ms?).ok();
            Some(Line { name: format!("{step}.{}", phase.name), reason: "", duration_ms })
        })
        .collect();
    lines.push(Line { name: step.to_owned(), reason: evidence, duration_ms: None });
    progress::history(tx, allocation, HistoryKind::Phase, &lines).await
}
