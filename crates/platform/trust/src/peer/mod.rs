//! Who is on the other side of a connection.
//!
//! TLS and identity are two questions, answered in two places. During the handshake [`ProofOfKey`] only makes
//! sure that a client which presents a certificate also holds its private key. Whether that certificate is worth
//! anything is decided by [`PeerVerifier`], once per connection, from the roots in force at that moment: so a
//! refusal is a clear answer in HTTP that can be audited, and a rotation of the authority needs no new listener.
//!
//! That is safe because nothing is open to a connection without a verified peer but enrolment, which asks for a
//! token; an unverified chain is never looked at for anything else.

mod proof;
mod verify;

pub use proof::ProofOfKey;
pub use verify::{CHAIN_BYTES, CHAIN_CERTIFICATES, PeerCertificate, PeerRefusal, PeerVerifier};
