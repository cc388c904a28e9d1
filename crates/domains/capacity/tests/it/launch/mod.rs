//! Launching through the endpoints, on a real database with nodes that stand in it: races, limits, groups, tenants,
//! and following what happens.

mod following;
mod groups;
mod invariants;
mod names;
mod project_deletion;
mod races;
mod reimaging;
mod requests;
mod tenants;
pub mod world;
