//! Allocations that are made together, all or none.
