//! Identity on a real database: tenants, the issuer, and who is let in.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

mod authn_directory;
mod authn_external;
mod authn_unnamed_sessions;
mod domain;
mod issuer_accounts;
mod issuer_code;
mod issuer_devices;
mod issuer_invitations;
mod issuer_keys;
mod issuer_lockout;
mod kit;
