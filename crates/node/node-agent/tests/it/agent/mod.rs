//! The agent against a control plane made for the purpose: real TLS, real HTTP/2, real signatures, over pipes
//! in memory. Time is tokio's and stands still while nothing happens, so that hours pass in milliseconds.

mod authority;
mod crash;
mod dialling;
mod gateway;
mod identity;
mod ledger;
mod node;
mod owners;
mod pipes;
mod process;
mod room;
mod tasks;
mod threads;
mod transport;
