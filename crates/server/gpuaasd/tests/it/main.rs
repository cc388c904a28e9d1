//! The product through its public surface: real processes, real Postgres, real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test, a failure is a failed test"
)]

mod added_columns;
mod agent;
mod agent_install;
mod agent_once;
mod agent_trust;
mod allocations;
mod browser_terminal;
mod commit_trap;
mod contract_fuzzing;
mod database_gate;
mod dead_letters;
mod external_issuer;
mod held;
mod hostile_input;
mod idempotency;
mod idle_connections;
mod install;
mod invitations;
mod isolation;
mod joining;
mod matrix;
mod money;
mod node_attacks;
mod node_logs_follow;
mod notices;
mod operations;
mod pages;
mod payments;
mod replicas;
mod restored;
mod restored_certificates;
mod restored_edges;
mod revoked_streams;
mod service_accounts;
mod ssh;
mod tenancy;
mod tenant_rows;
mod terminals;
mod tools;
mod tour;
mod unread_answers;
mod versions;
