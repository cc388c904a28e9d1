//! Events that people and webhooks are told of.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer};
use kernel::{Stream, event::Envelope};
use pg::WriteTx;

use crate::{Notify, model::events, service::notifying::event_notify};

macro_rules! consumers {
    ($($name:ident = $durable:literal, $stream:ident, $types:ident;)*) => {
        $(
            struct $name(Notify);

            #[async_trait]
            impl Consumer for $name {
                const NAME: &'static str = $durable;
                const STREAM: Stream = Stream::$stream;
                const EVENT_TYPES: &'static [&'static str] = events::$types;
                const AUDIT_ACTION: &'static str = "notification.tell";
                const REASON: &'static str = "tell people what happened";

                async fn handle(&self, tx: &mut WriteTx, envelope: &Envelope) -> Result<(), ConsumeError> {
                    Ok(event_notify(&self.0, tx, envelope).await?)
                }
            }
        )*

        /// Those that tell people and webhooks.
        pub fn consumers(notify: &Notify) -> Vec<bus::Registration> {
            vec![$(bus::Registration::of($name(notify.clone()))),*]
        }
    };
}

consumers! {
    OfBilling = "notify-billing", Billing, BILLING;
    OfPayments = "notify-payments", Payments, PAYMENTS;
    OfProvisioning = "notify-provisioning", Provisioning, PROVISIONING;
    OfNodes = "notify-nodes", Nodes, NODES;
}
