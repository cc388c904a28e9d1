//! What allocations and products are called, for billing's ledger lists and statements.

use std::collections::HashMap;

use async_trait::async_trait;
use billing::api::ResourceNames;
use kernel::{Failure, ids::AllocationId};
use pg::Connection;

use crate::store::resource_names;

/// Names as this domain has them now.
pub struct CapacityNames;

#[async_trait]
impl ResourceNames for CapacityNames {
    async fn allocation_names(
        &self,
        conn: &mut Connection,
        ids: &[AllocationId],
    ) -> Result<HashMap<AllocationId, String>, Failure> {
        let ids: Vec<_> = ids.iter().map(|id| id.uuid()).collect();
        let names = resource_names::allocations(conn, &ids).await?;
        Ok(names.into_iter().map(|(id, name)| (id.into(), name)).collect())
    }

    async fn product_names(
        &self,
        conn: &mut Connection,
        skus: &[String],
    ) -> Result<HashMap<String, String>, Failure> {
        Ok(resource_names::products(conn, skus).await?)
    }
}
