//! Placement: which slots of which nodes, or why none. Pure and deterministic: the same snapshot and the same request
//! have the same answer.
//!
//! **Where.** The wanted regions in their order; all members of a request in one region, all or none. A whole machine
//! is the free node with the lowest id. Slots come from one node: first nodes where they fit on one NUMA node; then,
//! packing, the node with fewest free slots that fits (spreading, with most); then the smallest NUMA node that fits;
//! then the lowest id. The members of a group are placed one after the other, each seeing what the others took.
//!
//! **Why not.** From counts alone: readiness before shape before amount. With the smallest change that would succeed.

mod choose;
mod refuse;
mod types;

pub use choose::{choose, place};
pub use refuse::{Allowed, fitting_region, refuse, smallest_change};
pub use types::*;
