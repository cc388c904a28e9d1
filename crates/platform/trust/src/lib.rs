//! Custody of secrets: what must not lie readable in the database is sealed under the master key, which
//! lies outside it.
//!
//! Every purpose has a key of its own, derived from the master key, so that what was sealed for one cannot
//! be opened for another; and everything sealed is bound to what it belongs to, so that it cannot be moved.
//! The certificate authority and the task signer come with the fleet.

mod seal;

pub use seal::{SealError, Sealer, derive};
