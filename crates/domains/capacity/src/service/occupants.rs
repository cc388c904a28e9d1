//! Whose allocations are on a node, for the fleet.

use std::sync::Arc;

use async_trait::async_trait;
use fleet::api::{NodeOccupant, NodeOccupants, Occupancy, OccupantState};
use identity::api::{OwnedBy, owner_labels};
use kernel::{Failure, ids::NodeId};
use pg::Connection;

use crate::{model::allocation::AllocationState, store};

struct Allocations;

/// For [`fleet::api::Fleet`], which shows and names what stands in the way of taking a node out of service.
pub fn occupancy() -> Arc<dyn Occupancy> {
    Arc::new(Allocations)
}

#[async_trait]
impl Occupancy for Allocations {
    async fn occupants(
        &self,
        conn: &mut Connection,
        node: NodeId,
        limit: i64,
    ) -> Result<NodeOccupants, Failure> {
        let (total, found) = store::occupants::on_node(conn, node, limit).await?;
        let owned: Vec<OwnedBy> = found
            .iter()
            .map(|one| OwnedBy {
                org: one.org_id.into(),
                project: one.project_id.into(),
                creator: one.creator_id,
            })
            .collect();
        let labels = owner_labels(conn, &owned).await?;
        let items = found.into_iter().zip(labels).filter_map(|(one, label)| {
            Some(NodeOccupant {
                allocation_id: one.id.into(),
                allocation_name: one.name,
                state: occupying(one.state)?,
                since: one.state_changed_at,
                org_id: one.org_id.into(),
                org_name: label.org_name,
                project_id: one.project_id.into(),
                project_name: label.project_name,
                owner: label.owner,
            })
        });
        Ok(NodeOccupants { total, items: items.collect() })
    }
}

/// None of an allocation that has ended: it is on no node.
fn occupying(state: AllocationState) -> Option<OccupantState> {
    match state {
        AllocationState::Requested => Some(OccupantState::Requested),
        AllocationState::Provisioning => Some(OccupantState::Provisioning),
        AllocationState::Active => Some(OccupantState::Active),
        AllocationState::Releasing => Some(OccupantState::Releasing),
        AllocationState::ReleaseFailed => Some(OccupantState::ReleaseFailed),
        AllocationState::Released | AllocationState::Failed => None,
    }
}
