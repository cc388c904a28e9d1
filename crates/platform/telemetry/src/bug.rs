//! Invariants that do not hold.

use crate::names;

/// Logs and counts a bug of ours. `found_by` says what kind of work met it: a request, a consumer, a step of a workflow.
pub fn bug_found(found_by: &str, bug: &str) {
    metrics::counter!(names::BUGS_TOTAL).increment(1);
    tracing::error!(found_by, bug, "an invariant is broken: this is a bug");
}
