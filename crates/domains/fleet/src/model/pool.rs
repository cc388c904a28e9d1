//! Pools: groups of nodes within a region.

use chrono::{DateTime, Utc};
use kernel::ids::PoolId;
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "NodePool")]
pub struct Pool {
    pub id: PoolId,
    pub region: String,
    pub name: String,
    pub description: String,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
