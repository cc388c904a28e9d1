//! Real parts for tests: a database of its own per test, the server as a real process, people who sign in.
//!
//! `cargo xtask test` starts one private Postgres and names its socket directory in `GPUAAS_TEST_PG`; under a plain
//! `cargo test` each test program starts one of its own. The
//! first test to come migrates a template database (named after the migrations, made under a lock); every
//! test clones it in some tens of milliseconds and drops its clone at the end.
//!
//! This crate is for tests only: it panics with a clear message rather than returning errors.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a failure is a failed test"
)]

mod agent;
mod api;
mod browser;
mod callers;
mod database;
mod event_sample;
mod eventually;
mod idp;
pub mod invariants;
mod launch;
mod machine;
mod mail;
pub mod money;
mod node;
mod pay;
mod postgres;
mod process;
mod s3;
mod server;
mod sign_in;
mod sink;
mod stripe;
mod wire;
mod world;

pub use agent::AgentProcess;
pub use api::{Answer, Api};
pub use browser::{Browser, Page, pkce};
pub use callers::{Callers, DefaultPolicies};
pub use database::{Scalar, TestDb, admin_url};
pub use event_sample::{Fields, event_sample};
pub use eventually::{eventually, eventually_within};
pub use idp::{AUDIENCE, Idp};
pub use launch::{REGION, SimulatedNodes, Tenant, made_up_key};
pub use machine::{Machine, NODE_SECRET};
pub use mail::MailServer;
pub use node::{CreatedNode, NodeClient, NodeKeys};
pub use pay::{PaySim, WEBHOOK_PATH};
pub use postgres::socket_dir;
pub use process::{free_port, http_client, program};
pub use s3::S3Server;
pub use server::{Server, ServerOptions};
pub use sign_in::{NEW_PASSWORD, sign_in, sign_in_first_admin};
pub use sink::{Message, WebhookSink};
pub use stripe::stripe_sdk;
pub use wire::{Flow, Wire};
pub use world::{Person, World};
