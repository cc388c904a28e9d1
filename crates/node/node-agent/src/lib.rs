//! The agent that runs on every node: it proves who it is, asks for signed work, does it once, and reports.
//!
//! **How it works.** The network side (`session/`) is one event loop over one HTTP/2 connection: it renews its
//! certificate, waits for tasks, reports, and does nothing privileged. A task that passes every check is
//! written to the journal before it is begun, runs on a thread of its own through the drivers, and its result
//! is written to the journal before it is told. Nothing on a node is ever run that was not signed.
//!
//! **What it promises.** Each task runs at most once, across any crash of the agent; one that was interrupted
//! is reported as interrupted and never run again. Its result is told until it was heard, always the same.
//! Unknown kinds, foreign signatures, replays and other nodes' tasks are refused without effect. The agent
//! connects to one address and listens on none. No program runs but through [`exec`].

pub mod atomic;
pub mod client;
pub mod config;
pub mod drivers;
pub mod exec;
pub mod executor;
pub mod handlers;
pub mod identity;
pub mod journal;
pub mod logs;
pub mod machine_owners;
pub mod program;
pub mod redact;
pub mod session;
pub mod ssh;
pub mod streams;
pub mod terminals;
pub mod transport;
pub mod update;
