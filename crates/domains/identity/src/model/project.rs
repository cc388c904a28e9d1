//! Projects.

use chrono::{DateTime, Utc};
use kernel::ids::{OrgId, ProjectId};
use schemars::JsonSchema;
use serde::Serialize;

/// The project that every new organization has.
pub const DEFAULT_PROJECT: &str = "default";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Project {
    pub id: ProjectId,
    pub org_id: OrgId,
    pub name: String,
    pub slug: String,
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
