//! Nodes against a real Postgres with real certificates and signatures: enrolment, onboarding, health, absence,
//! removal.

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
