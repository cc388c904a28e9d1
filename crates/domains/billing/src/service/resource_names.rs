//! What things are called in ledger lists and statements.

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use kernel::{
    Failure,
    ids::{AllocationId, ProjectId},
};
use pg::Connection;

use crate::Billing;

/// Names that billing does not have itself. What is not known any more is left out.
#[async_trait]
pub trait ResourceNames: Send + Sync {
    async fn allocation_names(
        &self,
        _: &mut Connection,
        _: &[AllocationId],
    ) -> Result<HashMap<AllocationId, String>, Failure> {
        Ok(HashMap::new())
    }
    async fn product_names(
        &self,
        _: &mut Connection,
        _: &[String],
    ) -> Result<HashMap<String, String>, Failure> {
        Ok(HashMap::new())
    }
}

/// Nobody knows names: ids are shown.
pub struct Unnamed;

impl ResourceNames for Unnamed {}

/// The names that one answer needs, each asked for once.
#[derive(Debug, Default)]
pub struct Names {
    pub allocations: HashMap<AllocationId, String>,
    pub projects: HashMap<ProjectId, String>,
    pub products: HashMap<String, String>,
}

/// What names are asked for.
#[derive(Debug, Default)]
pub struct Named {
    pub allocations: BTreeSet<AllocationId>,
    pub projects: BTreeSet<ProjectId>,
    pub skus: BTreeSet<String>,
}

impl Named {
    pub async fn load(self, billing: &Billing, conn: &mut Connection) -> Result<Names, Failure> {
        let allocations: Vec<_> = self.allocations.into_iter().collect();
        let projects: Vec<_> = self.projects.into_iter().collect();
        let skus: Vec<_> = self.skus.into_iter().collect();
        let mut names = Names::default();
        if !allocations.is_empty() {
            names.allocations = billing.names.allocation_names(conn, &allocations).await?;
        }
        if !projects.is_empty() {
            names.projects = identity::api::project_names(conn, &projects).await?;
        }
        if !skus.is_empty() {
            names.products = billing.names.product_names(conn, &skus).await?;
        }
        Ok(names)
    }
}
