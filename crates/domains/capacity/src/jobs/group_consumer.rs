//! Allocations that were made together end together: when the launch of one fails, the others are released.

use async_trait::async_trait;
use bus::{ConsumeError, Consumer};
use events::{ConsumerName, capacity::AllocationFailed};
use kernel::event::Envelope;
use pg::WriteTx;

use crate::{Capacity, service::groups::member_failed};

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
    const NAME: &'static str = ConsumerName::Groups.name();
    type Events = AllocationFailed;
    const AUDIT_ACTION: &'static str = "allocation_group.member_failed";
    const REASON: &'static str = "a member of a group failed";

    /// What was launched alone takes nobody down.
    fn concerns(&self, event: &AllocationFailed) -> bool {
        event.group_id.is_some()
    }

    async fn handle(
        &self,
        tx: &mut WriteTx,
        event: &AllocationFailed,
        _: &Envelope,
    ) -> Result<(), ConsumeError> {
        match event.group_id {
            Some(group) => Ok(member_failed(&self.capacity, tx, group, event.allocation_id).await?),
            None => Ok(()),
        }
    }
}
