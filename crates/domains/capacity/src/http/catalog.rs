//! `/catalog`: what can be had, where, and for how much.

use endpoint::{Empty, Endpoint, In, Json, ScopeKind, get};
use kernel::{Failure, Page, Permission};
use pg::ReadTx;

use crate::{
    Capacity,
    service::catalog::showing::{CatalogEntry, catalog_list},
};

pub fn endpoints(capacity: &Capacity) -> Vec<Endpoint> {
    vec![
        get("/api/v1/catalog", "catalog_list", "List products that can be launched")
            .describe("Active products with sizes, current price, and available capacity by region.")
            .in_scope(ScopeKind::Person)
            .needs(Permission::CatalogRead)
            .handle(capacity.clone(), list),
    ]
}

async fn list(
    capacity: Capacity,
    mut tx: ReadTx,
    _: In<Empty, Empty, ()>,
) -> Result<Json<Page<CatalogEntry>>, Failure> {
    Ok(Json(catalog_list(&capacity.catalog, &mut tx).await?))
}
