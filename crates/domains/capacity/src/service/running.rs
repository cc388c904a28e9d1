//! What runs, for billing's reconciliation.

use async_trait::async_trait;
use billing::api::RunningAllocations;
use kernel::{
    Failure,
    ids::{AllocationId, OrgId},
};
use pg::Connection;

use crate::store::running;

/// Allocations that are active are to be paid for.
pub struct ActiveAllocations;

#[async_trait]
impl RunningAllocations for ActiveAllocations {
    async fn page(
        &self,
        conn: &mut Connection,
        after: AllocationId,
        limit: i64,
    ) -> Result<Vec<(AllocationId, OrgId)>, Failure> {
        Ok(running::page(conn, after, limit).await?)
    }

    async fn running(
        &self,
        conn: &mut Connection,
        ids: &[AllocationId],
    ) -> Result<Vec<AllocationId>, Failure> {
        Ok(running::among(conn, ids).await?)
    }
}
