//! Compares claims, allocations, workflows, tasks and what nodes report.
