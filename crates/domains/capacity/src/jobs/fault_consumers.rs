//! Faults of hardware that are owed for.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer, decode};
use fleet::api::events::{CreditDue, CreditEnded};
use kernel::{Event as _, Stream, event::Envelope};
use pg::WriteTx;

use crate::{Capacity, model::events::AllocationActive, service::faults};

/// A fault began or ended.
pub struct FaultConsumer(pub Capacity);

#[async_trait]
impl Consumer for FaultConsumer {
    const NAME: &'static str = "capacity-faults";
    const STREAM: Stream = Stream::Nodes;
    const EVENT_TYPES: &'static [&'static str] = &[CreditDue::TYPE, CreditEnded::TYPE];
    const AUDIT_ACTION: &'static str = "allocation.fault_handled";
    const REASON: &'static str = "hardware is faulty, or no longer";

    async fn handle(&self, tx: &mut WriteTx, envelope: &Envelope) -> Result<(), ConsumeError> {
        if envelope.event_type == CreditEnded::TYPE {
            let event: CreditEnded = decode(envelope)?;
            return Ok(faults::ended(&self.0, tx, event.finding_id, event.at).await?);
        }
        let event: CreditDue = decode(envelope)?;
        Ok(faults::begun(&self.0, tx, event.finding_id).await?)
    }
}

/// A machine became active: perhaps on hardware whose fault was found while it was made.
pub struct ActiveConsumer(pub Capacity);

#[async_trait]
impl Consumer for ActiveConsumer {
    const NAME: &'static str = "capacity-active";
    const STREAM: Stream = Stream::Provisioning;
    const EVENT_TYPES: &'static [&'static str] = &[AllocationActive::TYPE];
    const AUDIT_ACTION: &'static str = "allocation.hardware_checked";
    const REASON: &'static str = "a machine became active";

    async fn handle(&self, tx: &mut WriteTx, envelope: &Envelope) -> Result<(), ConsumeError> {
        let event: AllocationActive = decode(envelope)?;
        Ok(faults::activated(&self.0, tx, event.allocation_id).await?)
    }
}
