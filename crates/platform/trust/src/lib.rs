//! Custody of secrets and the identities that rest on them: sealing, the certificate authority, the check of
//! whoever presents a certificate, and the keys that sign work for nodes.
//!
//! - [`Sealer`]: what must not lie readable in the database is sealed under the master key, which lies outside
//!   it. Every purpose has a key of its own, derived from the master key, so that what was sealed for one cannot
//!   be opened for another; and everything sealed is bound to what it belongs to, so that it cannot be moved.
//! - [`ca`]: the embedded certificate authority, root and intermediate, and the interface that another one
//!   (step-ca, Vault) would stand behind. From a certificate request it takes the public key and nothing else.
//! - [`peer`]: who a presented certificate chain stands for, or why it is refused.
//! - [`signer`]: the keys that sign work and the key that signs the list of signers. They lie in files (or
//!   wherever another [`signer::KeyCustody`] keeps them), never in the database.
//!
//! The three do not know each other: the authority cannot sign work, the signer cannot make a certificate, and
//! neither follows from the other's key. Nothing here waits, reads a clock or talks to a database; times are
//! arguments, and serial numbers come from the injected randomness. Keys are made by the cryptographic library.

pub mod ca;
pub mod peer;
mod pem;
mod seal;
pub mod signer;

pub use seal::{SealError, Sealer, derive, secret_for};
