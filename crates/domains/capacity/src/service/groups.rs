//! Groups: made together or not at all, released together, and taken down when a member fails.

use kernel::{
    Failure, Page, PageQuery, Problem,
    ids::{AllocationId, GroupId, ProjectId},
    text::Name,
};
use pg::{Connection, ReadTx, WriteTx, created};

use super::{
    allocations::views,
    launch::{Creator, Launched, Together, Wanted, launch_all},
    release::{may_operate, release_one},
};
use crate::{
    Capacity,
    model::{
        allocation::{AllocationState, AllocationView, ReleaseCause, default_name},
        group::{Group, GroupDetail, GroupState, MOST_MEMBERS},
    },
    store,
};

pub async fn create(
    capacity: &Capacity,
    tx: &mut WriteTx,
    creator: Creator,
    wanted: Wanted,
    members: u32,
) -> Result<GroupDetail, Failure> {
    if !(1..=MOST_MEMBERS).contains(&members) {
        return Err(Problem::field("members", format!("must be from 1 to {MOST_MEMBERS}")).into());
    }
    let id: GroupId = tx.db().ambient().id();
    let name = wanted.name.clone().map_or_else(|| default_name(&wanted.sku, id.uuid()), Name::into_string);
    let together = Together { id, name, members };
    let Launched { made, warnings } = launch_all(capacity, tx, creator, wanted, Some(&together)).await?;
    let group = Group {
        id: together.id,
        project_id: creator.project,
        name: together.name,
        members: i32::try_from(members)?,
        state: GroupState::Requested,
        created_by: creator.principal,
        created_at: made.first().map_or_else(|| tx.db().ambient().now(), |first| first.created_at),
    };
    let allocations = made.into_iter().map(AllocationView::from).collect();
    let detail = GroupDetail { group, allocations, warnings: Vec::new() };
    created(tx, "allocation_group", detail.group.id, &detail)?;
    Ok(GroupDetail { warnings, ..detail })
}

pub async fn list(tx: &mut ReadTx, project: ProjectId, page: &PageQuery) -> Result<Page<Group>, Failure> {
    let groups = store::groups::list(tx.conn(), project, page).await?;
    Ok(page.page(groups, |group: &Group| group.id.uuid()))
}

pub async fn get(conn: &mut Connection, project: ProjectId, id: GroupId) -> Result<GroupDetail, Failure> {
    let group =
        store::groups::get(conn, project, id).await?.ok_or_else(|| Problem::not_found("allocation group"))?;
    let allocations = store::allocations::of_group(conn, id).await?;
    let allocations = views(conn, allocations).await?;
    Ok(GroupDetail { group, allocations, warnings: Vec::new() })
}

/// Releases every member that is not ending yet, or none. `any`: the caller may operate what others made.
pub async fn release(
    capacity: &Capacity,
    tx: &mut WriteTx,
    project: ProjectId,
    id: GroupId,
    any: bool,
) -> Result<GroupDetail, Failure> {
    let before = get(tx.conn(), project, id).await?;
    for member in store::allocations::lock_of_group(tx.conn(), id).await? {
        may_operate(tx, any, &member)?;
        release_one(capacity, tx, &member, ReleaseCause::User, "released with its group").await?;
    }
    let after = get(tx.conn(), project, id).await?;
    tx.record("allocation_group", id, Some(&before), Some(&after))?;
    Ok(after)
}

/// A member's launch failed: what the others were for is not there, so they are released. Doing it again changes
/// nothing.
pub async fn member_failed(
    capacity: &Capacity,
    tx: &mut WriteTx,
    group: GroupId,
    failed: AllocationId,
) -> Result<(), Failure> {
    let mut released: Vec<AllocationId> = Vec::new();
    for member in store::allocations::lock_of_group(tx.conn(), group).await? {
        tx.audit_in_org(member.org_id);
        let goes_on = member.state == AllocationState::Active
            || matches!(member.state, AllocationState::Requested | AllocationState::Provisioning);
        if member.id != failed && goes_on {
            let reason = "another member of its group failed";
            release_one(capacity, tx, &member, ReleaseCause::Group, reason).await?;
            released.push(member.id);
        }
    }
    tx.record("allocation_group", group, None::<&()>, Some(&released))?;
    Ok(())
}
