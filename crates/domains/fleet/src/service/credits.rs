//! Findings for which whoever uses the hardware is owed a credit, as the domains that owe it ask for them.

use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{FindingId, NodeId, SlotId},
};
use pg::{Connection, WriteTx};

use crate::store;

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

/// The finding, which nobody resolves before this transaction ends.
pub async fn credit_finding_held(tx: &mut WriteTx, id: FindingId) -> Result<Option<CreditFinding>, Failure> {
    Ok(store::credits::held(tx.conn(), id).await?)
}

/// Those of a node that are not resolved, oldest first.
pub async fn credit_findings_open(
    conn: &mut Connection,
    node: NodeId,
) -> Result<Vec<CreditFinding>, Failure> {
    Ok(store::credits::open_of_node(conn, node).await?)
}
