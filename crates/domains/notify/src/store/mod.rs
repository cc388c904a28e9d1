//! SQL: the only writer of this domain's tables.

pub mod deliveries;
pub mod listeners;
pub mod notices;
pub mod preferences;
pub mod relay;
pub mod webhooks;

use crate::model::{
    delivery::{Channel, DeliveryState},
    notice::{NoticeKind, ResourceKind, Severity},
    webhook::WebhookState,
};

pg::named_columns! { Channel, DeliveryState, NoticeKind, ResourceKind, Severity, WebhookState }
