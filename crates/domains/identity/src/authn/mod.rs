//! Authentication: from a bearer token to a [`endpoint::Caller`].
//!
//! **One path for every issuer.** A token is a JWT. Its `iss` names a [`TrustedIssuer`], whose [`KeySource`]
//! is either a JWKS fetched over HTTP or the key ring of the built-in issuer; signature, audience and
//! lifetime are then checked in the same way. What was verified once is remembered by the token's SHA-256
//! until it expires.
//!
//! **Revocation.** A verified token only says who somebody was when it was signed. Whether the session, or
//! the service account's key, still lives, and which roles the person holds, is read from the database in
//! one query, kept for at most three seconds, and dropped at once by the invalidation keys `user:`,
//! `session:`, `org:`, `sak:`, `sa:` (each followed by a UUID) and `*`. So a revocation is effective within
//! five seconds on every replica even when notifications are lost.
//!
//! **First sight.** A person from an external issuer who was never seen before gets a user, a personal
//! organization and a project `default`, in one transaction; two concurrent first requests make one.
//! While nobody administers the platform, the person whose verified address the operator chose also becomes
//! its administrator, in that same transaction.
//! Sessions of the built-in issuer are made when it issues their first token, so an unknown one is gone.

mod authenticator;
mod directory;
mod jwks;
pub mod model;
mod principal;
mod remote;
pub mod service;
pub(crate) mod store;
mod verify;

pub use authenticator::Authn;
pub use directory::Places;
pub use jwks::{KeySet, VerifyingKey};
pub use remote::RemoteKeys;
pub use verify::{KeySource, OwnKeys, TrustedIssuer};
