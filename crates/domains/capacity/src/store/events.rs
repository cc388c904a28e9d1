//! The history of allocations.
