//! Messages on their way.

use chrono::{DateTime, Utc};
use kernel::ids::{DeliveryId, InvitationId, OrgId, UserId, WebhookId};
use lifecycle::lifecycle;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::notice::Notice;

lifecycle! {
    /// Queued until it arrived or is given up; an operator can have it tried again.
    DeliveryLifecycle = "delivery", initial Queued;
    states DeliveryState { Queued = "queued", Sent = "sent", Failed = "failed" }
    events DeliveryEvent { Arrive = "arrive", GiveUp = "give_up", Retry = "retry" }
    Queued on Arrive => Sent;
    Queued on GiveUp => Failed;
    Failed on Retry => Queued;
}

lifecycle::named_enum! {
    /// How a message goes. Each has a lane of its own: one that stands still keeps no other waiting.
    Channel = "channel" as "DeliveryChannel" {
        Mail = "mail",
        /// Mail that invites. Its content is another than that of [`Channel::Mail`].
        Invitation = "invitation",
        Webhook = "webhook",
    }
}

/// What a mail says, and to whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailContent {
    pub name: String,
    pub notice: Notice,
}

/// What is kept of a mail that invites. The rest is read when it is sent, and the link is never kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvitationContent {
    pub invitation_id: InvitationId,
}

/// A message that was taken to be sent.
#[derive(Clone, Debug)]
pub struct LeasedDelivery {
    pub id: DeliveryId,
    pub event_type: String,
    pub address: Option<String>,
    pub webhook_id: Option<WebhookId>,
    pub content: String,
    /// This attempt's number, from 1: whoever took it later has another.
    pub attempts: i32,
    pub queued_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Arrived,
    /// It may arrive another time.
    NotNow(String),
    /// It never will: the receiver said so.
    Never(String),
}

/// A message as operators see it. What it says is not theirs to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Delivery {
    pub id: DeliveryId,
    pub channel: Channel,
    pub state: DeliveryState,
    pub event_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub org_id: Option<OrgId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub person_id: Option<UserId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_id: Option<WebhookId>,
    pub attempts: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// While it is queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
}
