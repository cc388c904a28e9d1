//! Reading, exporting and checking the ledger.
