//! Outgoing webhooks.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Problem,
    event::Envelope,
    ids::{EventId, OrgId, ProjectId, WebhookId},
};
use lifecycle::lifecycle;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::events;

lifecycle! {
    /// Disabled by its organization, or when nothing arrived for a day.
    WebhookLifecycle = "webhook", initial Active;
    states WebhookState { Active = "active", Disabled = "disabled" }
    events WebhookEvent { Disable = "disable", Enable = "enable" }
    Active on Disable => Disabled;
    Disabled on Enable => Active;
}

/// The URL of a listener, to which nothing is sent: a name that never exists (RFC 2606).
pub const LISTENER_URL: &str = "https://listener.invalid/";
/// How long a listener stays when nobody listens: enough to connect again.
pub const LISTENER_KEPT: TimeDelta = TimeDelta::minutes(2);

/// How many an organization may have.
pub const MOST_WEBHOOKS: i64 = 20;
/// After this time without any success a webhook is disabled.
pub const DISABLED_AFTER: TimeDelta = TimeDelta::hours(24);
/// How long the secret before this one is used as well.
pub const OVERLAP: TimeDelta = TimeDelta::hours(24);

/// Where an organization is told of events. Its secret is never shown again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Webhook {
    pub id: WebhookId,
    pub name: String,
    pub url: String,
    /// All when there are none.
    pub event_types: Vec<String>,
    pub state: WebhookState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<String>,
    /// Since when nothing arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivered_at: Option<DateTime<Utc>>,
    /// Until then messages carry a second signature, made with the secret before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_secret_until: Option<DateTime<Utc>>,
    /// Events that were not queued for it because the organization's queue was full.
    pub dropped_events: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_dropped_at: Option<DateTime<Utc>>,
    /// Of a listener: it is deleted then, unless somebody listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens_until: Option<DateTime<Utc>>,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// What the relay needs to send to it.
#[derive(Clone, Debug)]
pub struct Destination {
    pub id: WebhookId,
    pub org_id: OrgId,
    pub name: String,
    pub url: String,
    pub active: bool,
    pub secret: Vec<u8>,
    pub previous_secret: Option<Vec<u8>>,
    pub previous_until: Option<DateTime<Utc>>,
    pub failing_since: Option<DateTime<Utc>>,
}

/// What a message to a webhook holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WebhookBody {
    pub id: EventId,
    #[serde(rename = "type")]
    pub event_type: String,
    pub created_at: DateTime<Utc>,
    pub org_id: OrgId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    pub data: Value,
}

impl WebhookBody {
    pub fn from_envelope(envelope: &Envelope, org: OrgId) -> Self {
        Self {
            id: envelope.event_id.into(),
            event_type: envelope.event_type.clone(),
            created_at: envelope.occurred_at,
            org_id: org,
            project_id: envelope.project_id.map(ProjectId::from),
            data: envelope.payload.clone(),
        }
    }
}

/// Sorted, each once, and all of them known.
pub fn check_event_types(mut types: Vec<String>) -> Result<Vec<String>, Problem> {
    for (place, wanted) in types.iter().enumerate() {
        if !events::of_organizations().any(|known| known == wanted) {
            let known: Vec<_> = events::of_organizations().collect();
            let text = format!("unknown event type; choose from {}", known.join(", "));
            return Err(Problem::field(format!("event_types[{place}]"), text));
        }
    }
    types.sort_unstable();
    types.dedup();
    Ok(types)
}

/// What a sealed secret is bound to: it opens for no other webhook.
pub fn bound_to(id: WebhookId) -> String {
    format!("webhook:{id}")
}

/// The organization that an event belongs to.
pub fn org_of(envelope: &Envelope) -> Option<OrgId> {
    let said = || envelope.payload.get("org_id").and_then(Value::as_str).and_then(|text| text.parse().ok());
    envelope.org_id.map(|id: Uuid| OrgId::from(id)).or_else(said)
}
