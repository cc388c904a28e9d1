//! Faults of hardware that are owed for.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer};
use events::{
    ConsumerName,
    capacity::AllocationActive,
    fleet::{CreditDue, CreditEnded},
};
use kernel::event::Envelope;
use pg::WriteTx;

use crate::{Capacity, service::faults};

events::event_set! {
    /// A fault began or ended.
    pub Fault { CreditDue, CreditEnded }
}

/// Opens and closes credits for faults.
pub struct FaultConsumer(pub Capacity);

#[async_trait]
impl Consumer for FaultConsumer {
    const NAME: &'static str = ConsumerName::Faults.name();
    type Events = Fault;
    const AUDIT_ACTION: &'static str = "allocation.fault_handled";
    const REASON: &'static str = "hardware is faulty, or no longer";

    async fn handle(&self, tx: &mut WriteTx, event: &Fault, _: &Envelope) -> Result<(), ConsumeError> {
        match event {
            Fault::CreditDue(event) => faults::begun(&self.0, tx, event.finding_id).await?,
            Fault::CreditEnded(event) => faults::ended(&self.0, tx, event.finding_id, event.at).await?,
        }
        Ok(())
    }
}

/// A machine became active: perhaps on hardware whose fault was found while it was made.
pub struct ActiveConsumer(pub Capacity);

#[async_trait]
impl Consumer for ActiveConsumer {
    const NAME: &'static str = ConsumerName::Active.name();
    type Events = AllocationActive;
    const AUDIT_ACTION: &'static str = "allocation.hardware_checked";
    const REASON: &'static str = "a machine became active";

    async fn handle(
        &self,
        tx: &mut WriteTx,
        event: &AllocationActive,
        _: &Envelope,
    ) -> Result<(), ConsumeError> {
        Ok(faults::activated(&self.0, tx, event.allocation_id).await?)
    }
}
