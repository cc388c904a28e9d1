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

use lifecycle::Named;

pub(crate) use queue::{Claimed, claim, clean, counts, fail, give_back, resolve};
pub use service::{DeadLetter, DeadLetterDetail, Filter, discard, get, list, requeue};

lifecycle::lifecycle! {
    /// The life of a dead letter.
    DeadLetterLifecycle = "dead_letter", initial Dead;
    states State { Dead = "dead", Requeued = "requeued", Discarded = "discarded", Resolved = "resolved" }
    events Step { Requeue = "requeue", Fail = "fail", Resolve = "resolve", Discard = "discard" }
    Dead on Requeue => Requeued;
    Dead on Discard => Discarded;
    Requeued on Resolve => Resolved;
    Requeued on Fail => Dead;
    Requeued on Discard => Discarded;
}

impl serde::Serialize for State {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for State {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::custom("must be dead, requeued, discarded or resolved"))
    }
}

impl schemars::JsonSchema for State {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DeadLetterState".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "enum": ["dead", "requeued", "discarded", "resolved"] })
    }
}

/// Whether the cause can pass by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DeadLetterClass")]
pub enum Class {
    Transient,
    Permanent,
}

impl Class {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
        }
    }

    pub(crate) fn parse(name: &str) -> Self {
        if name == "transient" { Self::Transient } else { Self::Permanent }
    }
}

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

    #[test]
    fn states_and_their_schema_agree() {
        let schema = schemars::schema_for!(State);
        let names: Vec<_> = DeadLetterLifecycle::STATES.iter().map(|s| s.name()).collect();
        assert_eq!(schema.get("enum"), Some(&serde_json::json!(names)));
    }
}
