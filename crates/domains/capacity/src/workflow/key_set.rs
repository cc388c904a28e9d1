//! The key set of a machine: who is entitled to log in, how the set is sent, and which version has arrived. A launch and
//! the workflow that renews keys do it in the same way.

use identity::api::member_ssh_keys;
use kernel::Failure;
use node_proto::catalog::{
    AccountSpec, InstallAuthorizedKeys, InstallAuthorizedKeysInput, RetainAuthorizedKeys, VmAuthorizedKeys,
    VmAuthorizedKeysInput, VmRetainAuthorizedKeys,
};
use pg::WriteTx;
use saga::{Signal, Step, StepCx, StepError};

use super::{failure::WorkflowFailure, tasks};
use crate::{
    Capacity,
    model::allocation::{Allocation, Shape},
    store::{
        access, machine_keys,
        progress::{self, KeyTask},
    },
};

/// The version of the key set that goes with the machine itself.
pub const FIRST_KEYS: i64 = 1;

/// Every key of everybody who may log in, sorted and without repetition, so that the same people give the same set.
pub(crate) async fn entitled_keys(tx: &mut WriteTx, allocation: &Allocation) -> Result<Vec<String>, Failure> {
    let granted = access::granted(tx.conn(), allocation.id).await?;
    let mut entitled: Vec<_> = granted.into_iter().map(|user| user.uuid()).collect();
    entitled.push(allocation.creator_id);
    let keys = member_ssh_keys(tx.conn(), allocation.project_id, &entitled).await?;
    let mut keys: Vec<String> = keys.into_iter().map(|(_, key)| key).collect();
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// Sends the complete key set as it is now, and remembers which that was. What a request ordered is sent by that order,
/// without the keys of those who lost access since; otherwise keys can only go.
pub async fn keys_send(
    capacity: &Capacity,
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
) -> Result<Step, StepError> {
    let (id, version) = (allocation.id, allocation.access_version);
    let entitled = entitled_keys(cx.tx, allocation).await?;
    machine_keys::mark_removed(cx.tx, id, version, &entitled).await?;
    let keys = machine_keys::list(cx.tx.conn(), id).await?;
    let installed = allocation.installed_access.max(FIRST_KEYS);
    let pending = machine_keys::pending(cx.tx.conn(), id, installed, version).await?;
    if pending.ordered {
        let Some(order) = &allocation.access_order else {
            return Err(tasks::fail(WorkflowFailure::NotOrdered, ""));
        };
        let queued = match allocation.shape {
            Shape::Baremetal => {
                tasks::ordered_keys::<InstallAuthorizedKeys>(capacity, cx, allocation, order, &keys).await?
            }
            Shape::GpuSlice | Shape::CpuVm => {
                tasks::ordered_keys::<VmAuthorizedKeys>(capacity, cx, allocation, order, &keys).await?
            }
        };
        if queued {
            progress::keys_sent(cx.tx, allocation, KeyTask::Install).await?;
            return Ok(Step::Suspended);
        }
        if !pending.removed {
            return Err(tasks::fail(WorkflowFailure::OrderExpired, "keys"));
        }
    }
    progress::keys_sent(cx.tx, allocation, KeyTask::Remove).await?;
    let (owner, username, authorized_keys) = (allocation.subject(), allocation.username.clone(), keys);
    match allocation.shape {
        Shape::Baremetal => {
            let uid = u32::try_from(allocation.uid).map_err(|error| StepError::bug(error.to_string()))?;
            let account = AccountSpec { username, uid, gid: uid };
            let input = InstallAuthorizedKeysInput { account, owner, authorized_keys };
            tasks::key_removal::<RetainAuthorizedKeys>(capacity, cx, allocation, &input).await
        }
        Shape::GpuSlice | Shape::CpuVm => {
            let input = VmAuthorizedKeysInput { owner, username, authorized_keys };
            tasks::key_removal::<VmRetainAuthorizedKeys>(capacity, cx, allocation, &input).await
        }
    }
}

/// Which key set the machine has now. Nothing when keys only went, although a request had ordered some that may not be
/// brought any more.
pub async fn keys_arrived(
    cx: &mut StepCx<'_>,
    allocation: &Allocation,
    signal: &Signal,
) -> Result<Option<i64>, StepError> {
    // The answer of all four kinds has the same form.
    drop(tasks::answer::<InstallAuthorizedKeys>(signal)?);
    let (version, task) = progress::keys_sent_last(cx.tx, allocation.id).await?;
    machine_keys::removal_confirmed(cx.tx, allocation.id, version).await?;
    let installed = allocation.installed_access.max(FIRST_KEYS);
    let pending = machine_keys::pending(cx.tx.conn(), allocation.id, installed, version).await?;
    let complete = task == KeyTask::Install || !pending.ordered;
    Ok(complete.then_some(version))
}
