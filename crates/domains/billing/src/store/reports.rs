//! Usage and cost, read in sets.
