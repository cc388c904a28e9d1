//! Takes nodes further: what enrolled or is in doubt is looked over, and simulated nodes may be approved by themselves.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer};
use events::{
    ConsumerName,
    fleet::{NodeDiscovered, NodeDoubted, NodeEnrolled},
};
use kernel::event::Envelope;
use pg::WriteTx;

use crate::{
    Fleet,
    service::{
        onboarding::{approve_simulated, begin},
        validations::probe_doubted,
    },
};

events::event_set! {
    /// What takes a node further.
    pub OnboardingEvent { NodeEnrolled, NodeDiscovered, NodeDoubted }
}

/// Runs where work can be signed. Whoever could write events of his own would have nodes looked at, nothing more.
pub struct OnboardingConsumer {
    fleet: Fleet,
}

impl OnboardingConsumer {
    pub fn new(fleet: Fleet) -> Self {
        Self { fleet }
    }
}

#[async_trait]
impl Consumer for OnboardingConsumer {
    const NAME: &'static str = ConsumerName::Onboarding.name();
    type Events = OnboardingEvent;
    const AUDIT_ACTION: &'static str = "node.onboard";
    const REASON: &'static str = "take a new node further";

    async fn handle(
        &self,
        tx: &mut WriteTx,
        event: &OnboardingEvent,
        _: &Envelope,
    ) -> Result<(), ConsumeError> {
        match event {
            OnboardingEvent::NodeEnrolled(event) => begin(&self.fleet, tx, event.node_id).await?,
            OnboardingEvent::NodeDiscovered(event) => {
                approve_simulated(&self.fleet, tx, event.node_id).await?;
            }
            OnboardingEvent::NodeDoubted(event) => probe_doubted(&self.fleet, tx, event.node_id).await?,
        }
        Ok(())
    }
}
