//! The one place of this crate that reads randomness.

use rand::RngCore as _;

pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    rand::rng().fill_bytes(&mut out);
    out
}

/// A fresh idempotency key.
pub fn idempotency_key() -> String {
    uuid::Builder::from_random_bytes(bytes()).into_uuid().to_string()
}
