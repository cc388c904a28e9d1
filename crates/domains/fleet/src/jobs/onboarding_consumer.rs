//! Takes nodes further: what enrolled or is in doubt is looked over, and simulated nodes may be approved by themselves.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer, decode};
use kernel::{Event as _, Stream, event::Envelope};
use pg::WriteTx;

use crate::{
    Fleet,
    model::events::{NodeDiscovered, NodeDoubted, NodeEnrolled},
    service::{
        onboarding::{approve_simulated, begin},
        validations::probe_doubted,
    },
};

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
    const NAME: &'static str = "fleet-onboarding";
    const STREAM: Stream = Stream::Nodes;
    const EVENT_TYPES: &'static [&'static str] =
        &[NodeEnrolled::TYPE, NodeDiscovered::TYPE, NodeDoubted::TYPE];
    const AUDIT_ACTION: &'static str = "node.onboard";
    const REASON: &'static str = "take a new node further";

    async fn handle(&self, tx: &mut WriteTx, envelope: &Envelope) -> Result<(), ConsumeError> {
        match envelope.event_type.as_str() {
            NodeEnrolled::TYPE => {
                let event: NodeEnrolled = decode(envelope)?;
                Ok(begin(&self.fleet, tx, event.node_id).await?)
            }
            NodeDiscovered::TYPE => {
                let event: NodeDiscovered = decode(envelope)?;
                Ok(approve_simulated(&self.fleet, tx, event.node_id).await?)
            }
            NodeDoubted::TYPE => {
                let event: NodeDoubted = decode(envelope)?;
                Ok(probe_doubted(&self.fleet, tx, event.node_id).await?)
            }
            _ => Ok(()),
        }
    }
}
