//! What organizations and projects are called, for whoever shows them by name. Row-level security confines a tenant to its
//! own; what does not exist any more is left out.

use std::collections::HashMap;

use kernel::{
    Failure,
    ids::{OrgId, ProjectId},
};
use pg::Connection;

use crate::store::resource_names;

pub async fn org_names(conn: &mut Connection, ids: &[OrgId]) -> Result<HashMap<OrgId, String>, Failure> {
    let ids: Vec<_> = ids.iter().map(|id| id.uuid()).collect();
    let names = resource_names::organizations(conn, &ids).await?;
    Ok(names.into_iter().map(|(id, name)| (id.into(), name)).collect())
}

pub async fn project_names(
    conn: &mut Connection,
    ids: &[ProjectId],
) -> Result<HashMap<ProjectId, String>, Failure> {
    let ids: Vec<_> = ids.iter().map(|id| id.uuid()).collect();
    let names = resource_names::projects(conn, &ids).await?;
    Ok(names.into_iter().map(|(id, name)| (id.into(), name)).collect())
}
