//! When a delivery is tried again.
