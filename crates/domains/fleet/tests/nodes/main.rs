//! Nodes against a real Postgres with real certificates and signatures: enrolment, onboarding, health, absence,
//! removal.

// Helpers here are test code too, but the lints see only functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod absence;
mod enrolment;
mod findings;
mod http;
mod in_use;
mod inventory;
mod key_waits;
mod lifecycles;
mod node_trust;
mod onboarding;
mod removal;
mod serves;
mod upgraded;
mod world;
