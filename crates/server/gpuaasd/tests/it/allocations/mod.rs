//! Allocations, from the request of a tenant to the machine and back.

mod crash;
mod faults;
mod launch;
mod lost_access;
mod node_key;
mod occupants;
mod operators;
pub mod real_host;
mod stop;
mod storm;
mod tenants;
