//! What a domain says happened. Events are only ever written to the outbox, in the transaction of the
//! change they tell about; the bus carries them from there.

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// The named streams of the contract, with how long each keeps its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Provisioning,
    Billing,
    Payments,
    Apps,
    Storage,
    Identity,
    Nodes,
}

impl Stream {
    pub const ALL: &'static [Self] = &[
        Self::Provisioning,
        Self::Billing,
        Self::Payments,
        Self::Apps,
        Self::Storage,
        Self::Identity,
        Self::Nodes,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Provisioning => "PROVISIONING",
            Self::Billing => "BILLING",
            Self::Payments => "PAYMENTS",
            Self::Apps => "APPS",
            Self::Storage => "STORAGE",
            Self::Identity => "IDENTITY",
            Self::Nodes => "NODES",
        }
    }

    pub const fn retention_days(self) -> u32 {
        match self {
            Self::Payments => 30,
            _ => 7,
        }
    }
}

/// A typed event. `TYPE` is `<domain>.<entity?>.<action>`; a changed meaning is a new `VERSION`.
pub trait Event: serde::Serialize + schemars::JsonSchema {
    const TYPE: &'static str;
    const VERSION: u16 = 1;
    const STREAM: Stream;
    const SUMMARY: &'static str;
}

/// What travels: the payload with who, when and where.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Envelope {
    pub event_id: Uuid,
    pub event_type: String,
    pub version: u16,
    pub occurred_at: DateTime<Utc>,
    pub correlation_id: Uuid,
    pub traceparent: Option<String>,
    pub org_id: Option<Uuid>,
    pub project_id: Option<Uuid>,
    pub payload: serde_json::Value,
}
