//! Usage and cost.
