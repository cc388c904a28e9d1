//! Allocations that are made together.
