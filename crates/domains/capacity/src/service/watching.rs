//! Waiting for allocations to change.
