//! Signed messages: what a signature must be.
