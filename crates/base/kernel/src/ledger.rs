//! The ledger's hash chains, checked without a database: by the service on its own rows, and by anybody on an export.
//!
//! A chain starts from a hash of its organization's id. Each posting's hash covers the hash before it, the posting's
//! fields and the digest of its lines, in a binary form that `ledger_append.sql` builds as well ([`record`]). Postings and
//! the lines of each are numbered from 1 without gaps. The head (number and hash of the last posting) is kept apart,
//! and once a day it is signed: whoever can write the database can make hashes that fit, but no signatures.
//!
//! What is checked ([`ChainVerifier`]): nothing was changed, removed, inserted or put elsewhere; the lines of each
//! posting sum to zero; the balances of each posting follow from those before it and its lines; every signed head is
//! what the chain was at that place. The first fault is named by posting and line. Memory does not grow with the chain.
//!
//! An export ([`ExportVerifier`]) is NDJSON: `{"head": …}`, then for each posting `{"posting": …}`, its lines as
//! `{"line": …}`, and `{"checkpoint": …}` when it was signed. Several chains may follow each other.

mod chain;
mod export;
mod fault;
mod record;

pub use chain::{ChainVerifier, Verify};
pub use export::{ExportFault, ExportLine, ExportVerifier, Verified};
pub use fault::{Fault, FaultReason};
pub use record::{Checkpoint, Head, Line, Posting, digest, genesis, key_id};

#[cfg(test)]
mod tests;
