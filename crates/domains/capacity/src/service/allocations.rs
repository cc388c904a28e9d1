//! Looking at allocations.
