//! Paths that lead to a scope. The pipeline has resolved the scope before a handler sees them.

use kernel::ids::{OrgId, ProjectId, UserId};
use schemars::JsonSchema;
use serde::Deserialize;

/// `…/orgs/{org_id}`
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct OrgPath {
    pub org_id: OrgId,
}

/// `…/projects/{project_id}`
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ProjectPath {
    pub project_id: ProjectId,
}

/// `…/users/{user_id}`
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct UserPath {
    pub user_id: UserId,
}
