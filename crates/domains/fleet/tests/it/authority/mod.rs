//! Authorities and signers against a real database and real key files.

mod authorities;
mod first;
mod kit;
mod signers;
mod tampering;
