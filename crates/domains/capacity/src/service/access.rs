//! The complete desired key set of an allocation: the keys of whoever made it and of those with a grant, as long as
//! they can enter the project.

use fleet::api::OrderedWork;
use identity::api::member_ssh_keys;
use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    ids::{AllocationId, ProjectId, UserId},
};
use lifecycle::Named as _;
use node_proto::catalog::{
    AccountSpec, InstallAuthorizedKeys, InstallAuthorizedKeysInput, VmAuthorizedKeys, VmAuthorizedKeysInput,
};
use pg::{ReadTx, WriteTx, changed, created, removed};
use saga::StartError;

use super::{
    launch::BEGIN_WITHIN,
    release::{Asked, history_append, operated},
};
use crate::{
    Capacity,
    model::{
        access::Grant,
        allocation::{Allocation, AllocationState, AllocationView, Shape},
        history::HistoryKind,
    },
    store::{access, allocations::of_project, machine_keys},
    workflow::{ACCESS, LaunchInput, entitled_keys},
};

/// As many as a node takes.
const MOST_KEYS: usize = 256;
const MOST_GRANTS: usize = 100;

/// Every key of everybody who may log in, when a machine takes as many.
pub async fn desired_keys(tx: &mut WriteTx, allocation: &Allocation) -> Result<Vec<String>, Failure> {
    let keys = entitled_keys(tx, allocation).await?;
    if keys.len() > MOST_KEYS {
        let text = format!(
            "The machine would have {} SSH keys; the limit is {MOST_KEYS}. Revoke a user's access, or delete keys.",
            keys.len()
        );
        return Err(Problem::new(Code::Unprocessable, text).detail("limit", MOST_KEYS).into());
    }
    Ok(keys)
}

pub async fn grant_list(
    tx: &mut ReadTx,
    project: ProjectId,
    allocation: AllocationId,
    page: &PageQuery,
) -> Result<Page<Grant>, Failure> {
    let allocation = of_project(tx.conn(), project, allocation).await?;
    let grants = access::list(tx.conn(), allocation.id, page).await?;
    Ok(page.page(grants, |grant| grant.user_id.uuid()))
}

pub async fn grant_create(
    capacity: &Capacity,
    tx: &mut WriteTx,
    asked: Asked,
    by: UserId,
    user: UserId,
) -> Result<Grant, Failure> {
    let before = changeable(tx, asked).await?;
    if before.creator_user() == Some(user) {
        return Err(
            Problem::field("user_id", "created the allocation, and therefore already has access").into()
        );
    }
    if access::granted(tx.conn(), before.id).await?.len() >= MOST_GRANTS {
        let text = format!(
            "{MOST_GRANTS} users already have access, which is the limit. Revoke a user's access first."
        );
        return Err(Problem::new(Code::Unprocessable, text).detail("limit", MOST_GRANTS).into());
    }
    if member_ssh_keys(tx.conn(), before.project_id, &[user.uuid()]).await?.is_empty() {
        let text = "The user has no access to the project, or no SSH key. Add them to the project, and ask them to add a key.";
        return Err(Problem::new(Code::Unprocessable, text).into());
    }
    let Some(grant) = access::insert(tx, &before, user, by).await? else {
        return Err(Problem::new(Code::AlreadyExists, "The user already has access.").into());
    };
    renew(capacity, tx, &before, "grant", &user.to_string()).await?;
    created(tx, "allocation_grant", grant_name(&before, user), &grant)?;
    Ok(grant)
}

pub async fn grant_delete(
    capacity: &Capacity,
    tx: &mut WriteTx,
    asked: Asked,
    user: UserId,
) -> Result<(), Failure> {
    let before = changeable(tx, asked).await?;
    let grant = access::delete(tx.conn(), before.id, user).await?;
    let grant = grant.ok_or_else(|| Problem::not_found("grant"))?;
    renew(capacity, tx, &before, "revoke", &user.to_string()).await?;
    removed(tx, "allocation_grant", grant_name(&before, user), &grant)
}

/// Brings the machine the keys that its people have now.
pub async fn access_refresh(
    capacity: &Capacity,
    tx: &mut WriteTx,
    asked: Asked,
) -> Result<Allocation, Failure> {
    let before = changeable(tx, asked).await?;
    let after = renew(capacity, tx, &before, "refresh", "").await?;
    changed(tx, "allocation", after.id, &AllocationView::from(before), &AllocationView::from(after.clone()))?;
    Ok(after)
}

fn grant_name(allocation: &Allocation, user: UserId) -> String {
    format!("{}/{user}", allocation.id)
}

async fn changeable(tx: &mut WriteTx, asked: Asked) -> Result<Allocation, Failure> {
    let allocation = operated(tx, asked).await?;
    match allocation.state {
        AllocationState::Requested | AllocationState::Provisioning | AllocationState::Active => {
            Ok(allocation)
        }
        AllocationState::Releasing
        | AllocationState::Released
        | AllocationState::ReleaseFailed
        | AllocationState::Failed => {
            let state = allocation.state.name();
            let text = format!("The allocation is {state}; its access can no longer be changed.");
            Err(Problem::new(Code::InvalidTransition, text).detail("state", state).into())
        }
    }
}

/// The next version of the key set, with the order that installs it. A launch that is under way and a workflow that
/// is installing keys take up the newest by themselves.
async fn renew(
    capacity: &Capacity,
    tx: &mut WriteTx,
    before: &Allocation,
    name: &'static str,
    about: &str,
) -> Result<Allocation, Failure> {
    let keys = desired_keys(tx, before).await?;
    let authorized_keys = keys.clone();
    let (owner, username) = (before.subject(), before.username.clone());
    let work = match before.shape {
        Shape::Baremetal => {
            let uid = u32::try_from(before.uid)?;
            let account = AccountSpec { username, uid, gid: uid };
            let input = InstallAuthorizedKeysInput { account, owner, authorized_keys };
            OrderedWork::from_input::<InstallAuthorizedKeys>(&input)?
        }
        Shape::GpuSlice | Shape::CpuVm => {
            OrderedWork::from_input::<VmAuthorizedKeys>(&VmAuthorizedKeysInput {
                owner,
                username,
                authorized_keys,
            })?
        }
    };
    let work = work.until(tx.db().ambient().now() + BEGIN_WITHIN);
    let order = capacity.fleet.order_extend(tx, &before.subject(), &before.work_order, vec![work])?;
    let after = access::order_set(tx, before, &order).await?;
    machine_keys::order(tx, &after, &keys).await?;
    history_append(tx, &after, HistoryKind::Access, name, about).await?;
    if after.state == AllocationState::Active {
        let input = LaunchInput { allocation_id: after.id };
        match saga::start(tx, &ACCESS, &after.access_subject(), Some(after.org_id), &input).await {
            Ok(_) | Err(StartError::AlreadyRunning) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(after)
}
