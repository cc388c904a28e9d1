//! The vocabulary that every other crate speaks: ids, errors, time, randomness, secrets, permissions,
//! policies, events and pages.
//!
//! Nothing here does I/O, waits, or knows about HTTP or SQL. Time and randomness are injected through
//! [`Ambient`], so that tests and simulations own them. What a client may see of a failure is a
//! [`Problem`] with a [`Code`] from the catalog; nothing else crosses the boundary.

pub mod ambient;
pub mod audit_chain;
pub mod authz;
pub mod correlation;
pub mod digest;
pub mod event;
pub mod hex;
pub mod ids;
pub mod ledger;
pub mod money;
pub mod page;
pub mod policy;
pub mod principal;
pub mod problem;
pub mod secret;
pub mod text;

pub use ambient::{Ambient, Clock, Entropy, ManualClock};
pub use authz::{Granted, Permission, PermissionSet, Role};
pub use correlation::CorrelationId;
pub use event::{Event, Stream};
pub use page::{Cursor, Page, PageQuery};
pub use problem::{Bug, Code, Failure, Problem};
pub use secret::Secret;
