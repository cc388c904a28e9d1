//! Messages that a consumer could not handle.
//!
//! ```text
//! dead ──requeue──▶ requeued ──resolve──▶ resolved
//!   ▲                │    │
//!   └─────fail───────┘    └──discard──▶ discarded ◀──discard── dead
//! ```
//!
//! A dead letter holds its own copy of the envelope, so it outlives the stream. `requeued` means that the
//! consumer's runner takes it at its next look, outside the transport: the effect, the inbox record and
//! `resolved` are one transaction. It is requeued by a person, or by itself on a slow schedule while its
//! class is transient. Discarding writes the inbox record, so a late copy has no effect either.
//! Open letters stay until somebody decides; closed ones are kept for 30 days.

mod queue;
mod service;

pub(crate) use queue::{LeasedLetter, clean, counts, fail, lease_release, letters_lease, resolve};
pub use service::{DeadLetter, DeadLetterDetail, Filter, discard, get, list, requeue};

lifecycle::lifecycle! {
    /// The life of a dead letter.
    DeadLetterLifecycle = "dead_letter", initial Dead;
    states State as "DeadLetterState" { Dead = "dead", Requeued = "requeued", Discarded = "discarded", Resolved = "resolved" }
    events Step { Requeue = "requeue", Fail = "fail", Resolve = "resolve", Discard = "discard" }
    Dead on Requeue => Requeued;
    Dead on Discard => Discarded;
    Requeued on Resolve => Resolved;
    Requeued on Fail => Dead;
    Requeued on Discard => Discarded;
}

lifecycle::named_enum! {
    /// Whether the cause can pass by itself.
    Class = "class of a dead letter" as "DeadLetterClass" { Transient = "transient", Permanent = "permanent" }
}

pg::named_columns! { Class, State }

#[cfg(test)]
mod tests {
    use lifecycle::Lifecycle;

    use super::*;

    #[test]
    fn a_closed_letter_never_opens_again() {
        for state in [State::Discarded, State::Resolved] {
            for step in DeadLetterLifecycle::EVENTS {
                assert_eq!(DeadLetterLifecycle::next(state, *step), None, "{state:?} on {step:?}");
            }
        }
    }
}
