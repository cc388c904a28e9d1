//! Allocations that were made together end together: when the launch of one fails, the others are released.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer, decode};
use kernel::{Event as _, Stream, event::Envelope};
use pg::WriteTx;

use crate::{Capacity, model::events::AllocationFailed, service::groups::member_failed};

pub struct GroupConsumer {
    capacity: Capacity,
}

impl GroupConsumer {
    pub fn new(capacity: Capacity) -> Self {
        Self { capacity }
    }
}

#[async_trait]
impl Consumer for GroupConsumer {
    const NAME: &'static str = "capacity-groups";
    const STREAM: Stream = Stream::Provisioning;
    const EVENT_TYPES: &'static [&'static str] = &[AllocationFailed::TYPE];
    const AUDIT_ACTION: &'static str = "allocation_group.member_failed";
    const REASON: &'static str = "a member of a group failed";

    /// What was launched alone takes nobody down.
    fn concerns(&self, envelope: &Envelope) -> bool {
        envelope.payload.get("group_id").is_none_or(|group| !group.is_null())
    }

    async fn handle(&self, tx: &mut WriteTx, envelope: &Envelope) -> Result<(), ConsumeError> {
        let event: AllocationFailed = decode(envelope)?;
        match event.group_id {
            Some(group) => Ok(member_failed(&self.capacity, tx, group, event.allocation_id).await?),
            None => Ok(()),
        }
    }
}
