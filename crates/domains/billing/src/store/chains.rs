//! Ledger chains as they are exported and checked.
