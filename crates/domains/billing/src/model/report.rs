//! Usage and cost, grouped.
