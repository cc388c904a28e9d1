//! Whoever can act: kinds and ids.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::{IdError, ServiceAccountId, UserId};

lifecycle::named_enum! {
    /// What acts, as audit, history and postings record it.
    ActorKind = "kind of actor" {
        User = "user",
        ServiceAccount = "service_account",
        /// A server of the fleet, by its certificate.
        Node = "node",
        System = "system",
        Anonymous = "anonymous",
    }
}

lifecycle::named_enum! {
    PrincipalKind = "kind of principal" { User = "user", ServiceAccount = "service_account" }
}

impl PrincipalKind {
    pub const fn actor(self) -> ActorKind {
        match self {
            Self::User => ActorKind::User,
            Self::ServiceAccount => ActorKind::ServiceAccount,
        }
    }
}

/// Whoever can act: a person or a service account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrincipalId {
    User(UserId),
    ServiceAccount(ServiceAccountId),
}

impl PrincipalId {
    pub const fn uuid(self) -> Uuid {
        match self {
            Self::User(id) => id.uuid(),
            Self::ServiceAccount(id) => id.uuid(),
        }
    }
}

impl PrincipalId {
    pub const fn kind(self) -> PrincipalKind {
        match self {
            Self::User(_) => PrincipalKind::User,
            Self::ServiceAccount(_) => PrincipalKind::ServiceAccount,
        }
    }

    pub const fn user(self) -> Option<UserId> {
        match self {
            Self::User(id) => Some(id),
            Self::ServiceAccount(_) => None,
        }
    }

    /// As a row has it: a kind beside an id.
    pub fn of_kind(kind: PrincipalKind, id: Uuid) -> Self {
        match kind {
            PrincipalKind::User => Self::User(id.into()),
            PrincipalKind::ServiceAccount => Self::ServiceAccount(id.into()),
        }
    }
}

impl fmt::Display for PrincipalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(id) => id.fmt(f),
            Self::ServiceAccount(id) => id.fmt(f),
        }
    }
}

impl FromStr for PrincipalId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        text.parse()
            .map(Self::User)
            .or_else(|error| text.parse().map(Self::ServiceAccount).map_err(|_| error))
    }
}

impl Serialize for PrincipalId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PrincipalId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(d)?;
        text.parse()
            .map_err(|_| serde::de::Error::custom("expected the id of a user or of a service account"))
    }
}

impl schemars::JsonSchema for PrincipalId {
    fn schema_name() -> Cow<'static, str> {
        "PrincipalId".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^(user|sa)_[0-9a-f]{32}$" })
    }
}
