//! Who may enter the machine of an allocation: whoever launched it, and users with access.

use kernel::{
    Code, Failure, Problem,
    ids::{AllocationId, NodeId, OrgId, ProjectId},
    principal::PrincipalId,
};
use lifecycle::Named as _;
use pg::Connection;

use crate::{
    model::allocation::{Allocation, AllocationState},
    store::{access, allocations::of_project},
};

/// The machine of an allocation.
#[derive(Clone, Debug)]
pub struct Entry {
    pub org_id: OrgId,
    pub project_id: ProjectId,
    pub allocation_id: AllocationId,
    pub node_id: NodeId,
    pub username: String,
    /// Of the machine's SSH server.
    pub host_keys: Vec<String>,
}

impl From<Allocation> for Entry {
    fn from(allocation: Allocation) -> Self {
        let Allocation { id, org_id, project_id, node_id, username, ssh_host_keys: host_keys, .. } =
            allocation;
        Self { org_id, project_id, allocation_id: id, node_id, username, host_keys }
    }
}

/// The machine, or why it cannot be entered.
pub async fn entry(
    conn: &mut Connection,
    project: ProjectId,
    allocation: AllocationId,
    who: PrincipalId,
) -> Result<Entry, Failure> {
    let allocation = of_project(conn, project, allocation).await?;
    if !has_access(conn, &allocation, who).await? {
        let text = "Only whoever launched the machine and users with access to it may enter it.";
        let suggestion = "Ask whoever launched it to grant you access: gpuaas allocations grants create";
        return Err(Problem::new(Code::OwnershipRequired, text).suggest(suggestion).into());
    }
    if allocation.state != AllocationState::Active {
        let state = allocation.state.name();
        let text = format!("The allocation is {state}; only an active one can be entered.");
        return Err(Problem::new(Code::InvalidTransition, text).detail("state", state).into());
    }
    Ok(Entry::from(allocation))
}

/// Where the machine is or was, whoever asks.
pub async fn machine(
    conn: &mut Connection,
    project: ProjectId,
    allocation: AllocationId,
) -> Result<Entry, Failure> {
    Ok(Entry::from(of_project(conn, project, allocation).await?))
}

async fn has_access(
    conn: &mut Connection,
    allocation: &Allocation,
    who: PrincipalId,
) -> Result<bool, Failure> {
    if who.kind() == allocation.creator_kind && who.uuid() == allocation.creator_id {
        return Ok(true);
    }
    let PrincipalId::User(user) = who else { return Ok(false) };
    Ok(access::granted(conn, allocation.id).await?.contains(&user))
}
