//! A finding for which whoever uses the hardware is owed a credit.

use chrono::{DateTime, Utc};
use kernel::ids::{FindingId, NodeId, SlotId};

/// A finding with the action `credit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditFinding {
    pub id: FindingId,
    pub node: NodeId,
    /// Nothing: it is about the whole node.
    pub slot: Option<SlotId>,
    pub code: String,
    pub since: DateTime<Utc>,
    /// When it was resolved.
    pub ended_at: Option<DateTime<Utc>>,
}

impl CreditFinding {
    /// Whether it is about any of these slots of its node.
    pub fn concerns(&self, slots: &[SlotId]) -> bool {
        self.slot.is_none_or(|slot| slots.contains(&slot))
    }
}
