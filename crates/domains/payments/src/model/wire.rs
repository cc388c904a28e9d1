//! What the provider says, in its own words. Only what is used; whatever else it sends is ignored.

use std::collections::HashMap;

use kernel::ids::{RefundId, TopupId};
use serde::Deserialize;
use serde_json::Value;

/// A message: something happened to an object.
#[derive(Debug, Deserialize)]
pub struct Message {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub data: Data,
}

#[derive(Debug, Deserialize)]
pub struct Data {
    pub object: Value,
}

/// The least that a message must have to be kept.
#[derive(Debug, Deserialize)]
pub struct Label {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
}

/// Another object: its id, or the whole of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Reference {
    Id(String),
    Whole { id: String },
}

impl Reference {
    pub fn id(&self) -> &str {
        match self {
            Self::Id(id) | Self::Whole { id } => id,
        }
    }
}

type Metadata = HashMap<String, String>;

#[derive(Clone, Debug, Deserialize)]
pub struct CheckoutSession {
    pub id: String,
    #[serde(default)]
    pub url: Option<String>,
    /// `open`, `complete` or `expired`.
    #[serde(default)]
    pub status: Option<String>,
    /// `paid`, `unpaid` or `no_payment_required`.
    #[serde(default)]
    pub payment_status: Option<String>,
    #[serde(default)]
    pub payment_intent: Option<Reference>,
    #[serde(default)]
    pub amount_total: Option<i64>,
    #[serde(default)]
    pub currency: Option<String>,
    #[serde(default)]
    pub client_reference_id: Option<String>,
    #[serde(default)]
    pub metadata: Option<Metadata>,
}

impl CheckoutSession {
    /// The top-up that it was made for; nothing when it is not one of ours.
    pub fn topup(&self) -> Option<TopupId> {
        let named = self.metadata.as_ref().and_then(|metadata| metadata.get("topup_id"));
        named.or(self.client_reference_id.as_ref())?.parse().ok()
    }

    pub fn is_paid(&self) -> bool {
        self.payment_status.as_deref() == Some("paid")
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Customer {
    pub id: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct PaymentIntent {
    pub id: String,
    #[serde(default)]
    pub amount_received: i64,
    pub currency: String,
    pub status: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Refund {
    pub id: String,
    pub amount: i64,
    pub currency: String,
    /// `pending`, `requires_action`, `succeeded`, `failed` or `canceled`.
    #[serde(default)]
    pub status: Option<String>,
    #[serde(default)]
    pub payment_intent: Option<Reference>,
    #[serde(default)]
    pub failure_reason: Option<String>,
    #[serde(default)]
    pub metadata: Option<Metadata>,
}

impl Refund {
    /// The refund of ours that it carries out; nothing when somebody made it at the provider.
    pub fn ours(&self) -> Option<RefundId> {
        self.metadata.as_ref()?.get("refund_id")?.parse().ok()
    }

    pub fn has_failed(&self) -> bool {
        matches!(self.status.as_deref(), Some("failed" | "canceled"))
    }

    pub fn has_succeeded(&self) -> bool {
        self.status.as_deref() == Some("succeeded")
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Dispute {
    pub id: String,
    pub amount: i64,
    pub currency: String,
    pub status: String,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub payment_intent: Option<Reference>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct List<T> {
    pub data: Vec<T>,
    #[serde(default)]
    pub has_more: bool,
}

/// An error as the provider explains it.
#[derive(Debug, Deserialize)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Debug, Deserialize)]
pub struct ErrorDetail {
    #[serde(default)]
    pub code: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_names_its_top_up_in_either_place_and_others_have_none() {
        let topup = TopupId::from(uuid::Uuid::from_u128(5));
        let read = |json: Value| serde_json::from_value::<CheckoutSession>(json).unwrap();
        let by_metadata = read(serde_json::json!({ "id": "cs", "metadata": { "topup_id": topup } }));
        let by_reference =
            read(serde_json::json!({ "id": "cs", "client_reference_id": topup, "metadata": {} }));
        let other =
            read(serde_json::json!({ "id": "cs", "client_reference_id": "cart 7", "metadata": null }));
        assert_eq!(
            (by_metadata.topup(), by_reference.topup(), other.topup()),
            (Some(topup), Some(topup), None)
        );
    }

    #[test]
    fn a_reference_is_read_whether_it_is_expanded_or_not() {
        for json in
            [serde_json::json!("pi_1"), serde_json::json!({ "id": "pi_1", "object": "payment_intent" })]
        {
            assert_eq!(serde_json::from_value::<Reference>(json).unwrap().id(), "pi_1");
        }
    }
}
