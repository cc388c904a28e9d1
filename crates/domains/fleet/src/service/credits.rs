//! Findings for which whoever uses the hardware is owed a credit, as the domains that owe it ask for them.

use kernel::{
    Failure,
    ids::{FindingId, NodeId},
};
use pg::{Connection, WriteTx};

use crate::{model::credit_finding::CreditFinding, store};

/// Locks a finding, so that it is not resolved before this transaction ends.
pub async fn credit_finding_lock(tx: &mut WriteTx, id: FindingId) -> Result<Option<CreditFinding>, Failure> {
    Ok(store::credits::lock(tx.conn(), id).await?)
}

/// Those of a node that are not resolved, oldest first.
pub async fn credit_findings_open(
    conn: &mut Connection,
    node: NodeId,
) -> Result<Vec<CreditFinding>, Failure> {
    Ok(store::credits::open_of_node(conn, node).await?)
}
