//! What allocations hold.
