//! Findings of reconciliation.
