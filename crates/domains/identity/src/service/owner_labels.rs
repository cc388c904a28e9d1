//! What operators call the owners of something: organization, project and person by name.

use kernel::{
    Failure,
    ids::{OrgId, ProjectId},
};
use pg::Connection;
use uuid::Uuid;

use crate::{model::owner_label::OwnerLabel, store};

/// Where something is, and who made it: a person or a service account.
#[derive(Clone, Copy, Debug)]
pub struct OwnedBy {
    pub org: OrgId,
    pub project: ProjectId,
    pub creator: Uuid,
}

/// One label for each, in the same order; what does not exist any more has an empty name. Only for a caller who may see
/// all organizations: nothing is hidden here.
pub async fn owner_labels(conn: &mut Connection, owned: &[OwnedBy]) -> Result<Vec<OwnerLabel>, Failure> {
    let orgs: Vec<Uuid> = owned.iter().map(|one| one.org.uuid()).collect();
    let projects: Vec<Uuid> = owned.iter().map(|one| one.project.uuid()).collect();
    let creators: Vec<Uuid> = owned.iter().map(|one| one.creator).collect();
    Ok(store::owner_labels::list(conn, &orgs, &projects, &creators).await?)
}
