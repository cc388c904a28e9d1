//! The events of every domain: what one says happened, and the others can act on.
//!
//! **Who owns what.** One module for each domain that publishes, with its events and the small enumerations that they
//! carry. The domain emits these types and uses the same enumerations in its own model. A consumer names the type
//! ([`EventSet`]), so renaming an event, or removing a field that somebody reads, breaks the build of who listens. The
//! gate `event-types` keeps names of events out of every other crate, and the tests of this one compare the types with
//! `openapi/events.json`, which is what others read.
//!
//! **Upgrades.** Messages of the release before are in the queues when this one starts, and replicas of the release
//! before read what this one writes. So a field is only added, as an `Option` (a message without it reads as none), a name
//! on the wire never changes, and a value of an enumeration is read by one release before the next one writes it.
//! Anything else is an event of another name. A test reads messages of `openapi/released/events.json`.
//!
//! **Who listens** is a list as well ([`ConsumerName`]): the server does not start unless each of them is registered
//! exactly once.
//!
//! Nothing here opens a connection. `sqlx` is a dependency only because the enumerations are stored by name too, and the
//! traits that read a column can be implemented nowhere but beside the type.

pub mod asyncapi;
pub mod billing;
pub mod capacity;
pub mod fleet;
pub mod identity;
pub mod payments;

mod consumer_name;
mod declare;
mod event_set;

pub use asyncapi::EventDoc;
pub use consumer_name::ConsumerName;
pub use event_set::EventSet;
// For the code that the macros generate.
#[doc(hidden)]
pub use {kernel, serde, serde_json};

/// Every event that is published.
pub fn published() -> Vec<EventDoc> {
    [identity::docs(), fleet::docs(), billing::docs(), capacity::docs(), payments::docs()].concat()
}
