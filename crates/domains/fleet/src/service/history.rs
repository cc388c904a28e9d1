//! What became of a node, step by step.

use kernel::{Failure, Page, PageQuery, ids::NodeId};
use pg::ReadTx;
use uuid::Uuid;

use super::found;
use crate::{model::node::HistoryEntry, store};

/// Newest first. The cursor is the number of the entry.
pub async fn node_history(
    tx: &mut ReadTx,
    node: NodeId,
    page: &PageQuery,
) -> Result<Page<HistoryEntry>, Failure> {
    found(store::nodes::get(tx.conn(), node).await?, "node")?;
    let before = i64::try_from(page.before().as_u128()).unwrap_or(i64::MAX);
    let entries = store::history::list(tx.conn(), node, before, page.limit()).await?;
    Ok(page.page(entries, |entry| Uuid::from_u128(u128::from(entry.seq.unsigned_abs()))))
}
