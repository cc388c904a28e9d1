//! Events that people and webhooks are told of.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer};
use events::ConsumerName;
use kernel::event::Envelope;
use pg::WriteTx;

use crate::{
    Notify,
    model::events::{BillingEvent, NodeEvent, PaymentEvent, ProvisioningEvent},
    service::notifying::event_notify,
};

macro_rules! consumers {
    ($($consumer:ident: $name:ident, $events:ident;)*) => {
        $(
            struct $consumer(Notify);

            #[async_trait]
            impl Consumer for $consumer {
                const NAME: &'static str = ConsumerName::$name.name();
                type Events = $events;
                const AUDIT_ACTION: &'static str = "notification.tell";
                const REASON: &'static str = "tell people what happened";

                async fn handle(
                    &self,
                    tx: &mut WriteTx,
                    event: &$events,
                    envelope: &Envelope,
                ) -> Result<(), ConsumeError> {
                    Ok(event_notify(&self.0, tx, event, envelope).await?)
                }
            }
        )*

        /// Those that tell people and webhooks.
        pub fn consumers(notify: &Notify) -> Vec<bus::Registration> {
            vec![$(bus::Registration::for_consumer($consumer(notify.clone()))),*]
        }
    };
}

consumers! {
    BillingNotifier: BillingNotices, BillingEvent;
    PaymentNotifier: PaymentNotices, PaymentEvent;
    ProvisioningNotifier: ProvisioningNotices, ProvisioningEvent;
    NodeNotifier: NodeNotices, NodeEvent;
}
