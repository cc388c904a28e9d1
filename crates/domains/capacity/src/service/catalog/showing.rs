//! The catalog as customers see it: what is sold, for how much, and how much of it is free.

use std::{collections::HashMap, sync::Arc};

use kernel::{Failure, Page};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Serialize;

use super::Catalog;
use crate::{
    model::{
        allocation::Shape,
        sku::{Availability, Price, Product, Profile},
    },
    store::{self, catalog::Wanted},
};

/// A product that can be had.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CatalogEntry {
    pub sku: String,
    pub vendor: String,
    pub display_name: String,
    pub shape: Shape,
    /// The numbers of GPUs that one machine of it can have.
    pub gpu_counts: Vec<i32>,
    /// The sizes that can be asked for by name; none where it is whole machines only.
    pub profiles: Vec<Profile>,
    pub price: Price,
    /// Where there are machines for it. The counts are true at the moment of the answer and promise nothing.
    pub regions: Vec<Availability>,
}

/// Everything that is sold, with what is free as it is committed now.
pub async fn catalog_list(catalog: &Catalog, tx: &mut ReadTx) -> Result<Page<CatalogEntry>, Failure> {
    let products = catalog.sold().await?;
    let wanted: Vec<Wanted<'_>> =
        products.iter().map(|product| Wanted { sku: &product.sku, size: smallest(product) }).collect();
    let mut regions: HashMap<String, Vec<Availability>> = HashMap::new();
    for (sku, availability) in store::catalog::availability(tx.conn(), &wanted).await? {
        regions.entry(sku).or_default().push(availability);
    }
    let entry = |product: &Arc<Product>| CatalogEntry {
        sku: product.sku.sku.clone(),
        vendor: product.sku.vendor.clone(),
        display_name: product.sku.display_name.clone(),
        shape: product.sku.capacity_shape,
        gpu_counts: product.sku.allowed_gpu_counts.clone(),
        profiles: product.profiles.clone(),
        price: product.price.clone(),
        regions: regions.remove(&product.sku.sku).unwrap_or_default(),
    };
    // Their number is bounded where they are made: one page is all.
    Ok(Page { items: products.iter().map(entry).collect(), next_cursor: None })
}

/// Slots of its smallest machine; 0 for a whole node.
fn smallest(product: &Product) -> i32 {
    match product.sku.capacity_shape {
        Shape::Baremetal => 0,
        Shape::GpuSlice => product.sku.allowed_gpu_counts.iter().copied().min().unwrap_or(1).max(1),
        Shape::CpuVm => 1,
    }
}
