//! Typed ids: a UUIDv7 inside, a prefix in text (`org_0197…`), so that a project id cannot be passed
//! where an organization id is meant, neither in code nor on the wire.

use std::{borrow::Cow, fmt, str::FromStr};

use uuid::Uuid;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("expected an id of the form {prefix}_<32 hex digits>")]
pub struct IdError {
    pub prefix: &'static str,
}

fn parse(prefix: &'static str, text: &str) -> Result<Uuid, IdError> {
    let bad = IdError { prefix };
    let hex = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).ok_or(IdError { prefix })?;
    if hex.len() != 32 || hex.bytes().any(|b| !b.is_ascii_digit() && !(b'a'..=b'f').contains(&b)) {
        return Err(bad);
    }
    Uuid::try_parse(hex).map_err(|_| bad)
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;
            pub const fn uuid(self) -> Uuid { self.0 }
        }
        impl From<Uuid> for $name { fn from(id: Uuid) -> Self { Self(id) } }
        impl From<$name> for Uuid { fn from(id: $name) -> Self { id.0 } }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, concat!($prefix, "_{}"), self.0.simple()) }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Display::fmt(self, f) }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> { parse($prefix, text).map(Self) }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> { s.collect_str(self) }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
        impl schemars::JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> { stringify!($name).into() }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": concat!("^", $prefix, "_[0-9a-f]{32}$") })
            }
        }
    )*};
}

ids! {
    /// A tenant: the billing and isolation boundary.
    OrgId = "org";
    /// Where resources live; belongs to exactly one organization.
    ProjectId = "proj";
    UserId = "user";
    InvitationId = "inv";
    ServiceAccountId = "sa";
    ServiceAccountKeyId = "sak";
    SessionId = "sess";
    SshKeyId = "key";
    EventId = "evt";
    AuditId = "aud";
    DeadLetterId = "dl";
    LocalAccountId = "acct";
    /// A server of the fleet.
    NodeId = "node";
    PoolId = "pool";
    /// A bootstrap or repair token of a node.
    NodeTokenId = "ntok";
    /// A part of a node that can be sold by itself.
    SlotId = "slot";
    /// One signed piece of work for one node.
    TaskId = "task";
    GrantId = "grant";
    /// A shell on a node, with all who attach to it.
    TerminalSessionId = "term";
    /// One look at the recording of a terminal session.
    RecordingViewId = "recview";
    FindingId = "find";
    ValidationId = "val";
    /// One generation of the certificate authority.
    AuthorityId = "ca";
    /// A project's lease of a node or of slots.
    AllocationId = "alloc";
    /// Allocations that were made together, all or none.
    GroupId = "agrp";
    /// One run of a durable workflow.
    SagaRunId = "run";
    /// Something that two records disagree about.
    DiscrepancyId = "disc";
    /// One entry of an organization's ledger.
    PostingId = "post";
    /// Something that costs by time.
    MeterId = "meter";
    /// A time for which nobody pays for a meter.
    PauseId = "pause";
    /// A posting that an administrator asks for.
    AdjustmentId = "adj";
    /// A change that needs a second person.
    SensitiveChangeId = "chg";
    /// Something that books and world disagree about.
    BillingFindingId = "bfnd";
    /// A checkout: money that is on its way.
    TopupId = "topup";
    /// Money that arrived.
    PaymentId = "pay";
    RefundId = "rfnd";
    DisputeId = "dsp";
    NotificationId = "note";
    /// Where an organization wants to be told of events.
    WebhookId = "hook";
    /// One message on its way to somebody.
    DeliveryId = "dlv";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text_form_and_refuses_other_prefixes() {
        let id = OrgId::from(Uuid::from_u128(7));
        assert_eq!(id.to_string().parse::<OrgId>(), Ok(id));
        assert!(id.to_string().parse::<ProjectId>().is_err());
    }

    #[test]
    fn other_spellings_of_the_uuid_are_refused() {
        for text in
            ["org_", "org_00000000-0000-0000-0000-000000000000", "org_ABCDEF00000000000000000000000000", "7"]
        {
            assert!(text.parse::<OrgId>().is_err(), "{text}");
        }
    }
}
