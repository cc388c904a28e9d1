//! Reconciliation of meters, usage and ledger.
