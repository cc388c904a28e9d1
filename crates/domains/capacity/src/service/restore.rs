//! After a restore from a backup: compares the records with the nodes, keeps what operators decide, and goes on.
//!
//! Comparing changes nothing but the list of discrepancies. A decision is kept; only cordoning is done at once, because
//! it only takes away. Everything else is done in the transaction that resumes: the database refuses it before.

use fleet::api::{cordon_once, nodes_uncompared, nodes_unheard};
use kernel::{
    Code, CorrelationId, Failure, Page, PageQuery, Problem,
    ids::{DiscrepancyId, NodeId},
    text::Reason,
};
use pg::{
    Connection, Installation, Origin, Permit, ReadTx, Restored, WriteTx, found, installation_compared,
    installation_get, installation_lock, installation_resume,
};

use super::{
    discrepancies::{Belief, Checked, check_by},
    release::end_gone,
};
use crate::{
    Capacity,
    model::{
        allocation::AllocationState,
        discrepancy::Discrepancy,
        restore::{Decision, RestoreDifference, RestoreMode, RestoreStatus},
    },
    store::{self, allocations::lock},
};

/// Of nodes that have not reported, so many are named.
const MOST_UNHEARD: i64 = 100;

pub async fn restore_status(tx: &mut ReadTx) -> Result<RestoreStatus, Failure> {
    let installation = installation_get(tx.conn()).await?;
    status(tx.conn(), installation).await
}

async fn status(conn: &mut Connection, now: Installation) -> Result<RestoreStatus, Failure> {
    let (differences, undecided) = store::restore::counts(conn).await?;
    let generation = now.generation;
    let Some(Restored { at, because, state_at, .. }) = now.restored else {
        return Ok(RestoreStatus {
            mode: RestoreMode::Normal,
            generation,
            restored_at: None,
            because: None,
            state_at: None,
            nodes_unheard: Vec::new(),
            nodes_uncompared: Vec::new(),
            differences,
            undecided: 0,
        });
    };
    Ok(RestoreStatus {
        mode: RestoreMode::Restore,
        generation,
        restored_at: Some(at),
        because: Some(because),
        state_at: Some(state_at),
        nodes_unheard: nodes_unheard(conn, at, MOST_UNHEARD).await?,
        nodes_uncompared: nodes_uncompared(conn, at, true, MOST_UNHEARD).await?,
        differences,
        undecided,
    })
}

pub async fn restore_difference_list(
    tx: &mut ReadTx,
    page: &PageQuery,
) -> Result<Page<RestoreDifference>, Failure> {
    let rows = store::restore::list(tx.conn(), page).await?;
    Ok(page.page(rows, |row| row.discrepancy.id.uuid()))
}

/// Keeps what is decided about a difference; the last word counts.
pub async fn restore_difference_settle(
    tx: &mut WriteTx,
    id: DiscrepancyId,
    decision: Decision,
    note: &Reason,
) -> Result<Discrepancy, Failure> {
    unsettled(tx).await?;
    let about = found(store::discrepancies::get(tx.conn(), id).await?, "difference")?;
    decision.check(&about)?;
    let (by, now) = (tx.permit().actor().id, tx.db().ambient().now());
    store::restore::decide(tx.conn(), id, decision, note.as_str(), by, now).await?;
    if let (Decision::Cordon, Some(node)) = (decision, about.node_id) {
        cordon_once(tx, node, &format!("differs after a restore: {note}")).await?;
    }
    tx.record("discrepancy", id, None::<&()>, Some(&(decision, note.as_str())))?;
    Ok(about)
}

/// Goes on: what was decided is done, and work begins again. Refused while a difference is undecided, a node on which
/// something may be placed has not reported, or the records were not compared with what each of them reported. A node that
/// is cordoned keeps nobody from resuming; while it was not compared it cannot be uncordoned afterwards.
pub async fn restore_resume(capacity: &Capacity, tx: &mut WriteTx) -> Result<RestoreStatus, Failure> {
    let restored = unsettled(tx).await?;
    let silent = nodes_unheard(tx.conn(), restored.at, MOST_UNHEARD).await?;
    if !silent.is_empty() {
        return Err(unheard(&silent).into());
    }
    let (_, undecided) = store::restore::counts(tx.conn()).await?;
    if undecided > 0 {
        let text = format!("{undecided} differences between the records and the nodes are undecided.");
        let problem = Problem::new(Code::InvalidTransition, text).detail("undecided", undecided);
        return Err(problem
            .suggest("List them with `gpuaas ops restore differences`, and settle each with `gpuaas ops restore settle`.")
            .into());
    }
    // Also one that was cordoned while the others were compared, and is not any more.
    let uncompared = nodes_uncompared(tx.conn(), restored.at, false, MOST_UNHEARD).await?;
    if restored.compared_at.is_none() || !uncompared.is_empty() {
        let nodes: Vec<String> = uncompared.iter().map(NodeId::to_string).collect();
        let text = "The records have not been compared with the reports of the nodes yet.";
        let what_to_do = "Wait a few seconds, check `gpuaas ops restore status`, and resume again; a process \
                          with the role provisioning-worker must be running.";
        let problem = Problem::new(Code::InvalidTransition, text).detail("nodes", nodes);
        return Err(problem.suggest(what_to_do).into());
    }
    installation_resume(tx).await?;
    for (id, note) in store::restore::to_end(tx.conn()).await? {
        // Not `held`: the audit row of resuming is the platform's.
        let Some(before) = lock(tx.conn(), id).await? else { continue };
        if before.state == AllocationState::Active {
            let reason = format!("it no longer existed when the platform was restored from a backup: {note}");
            end_gone(capacity, tx, &before, &reason, restored.state_at).await?;
        }
    }
    let installation = installation_get(tx.conn()).await?;
    tx.record("installation", installation.id, Some(&RestoreMode::Restore), Some(&RestoreMode::Normal))?;
    status(tx.conn(), installation).await
}

fn unheard(silent: &[NodeId]) -> Problem {
    let count = silent.len();
    let nodes: Vec<String> = silent.iter().map(NodeId::to_string).collect();
    let text = format!("{count} nodes have not reported since the restore; their allocations are unknown.");
    Problem::new(Code::InvalidTransition, text).detail("nodes", nodes).suggest(
        "Wait for them; repair those that cannot reconnect by themselves (`gpuaas nodes repair-token`), or \
         cordon them (`gpuaas nodes cordon`) so that nothing is placed on them.",
    )
}

/// The restore that is under way, locked until the transaction ends.
async fn unsettled(tx: &mut WriteTx) -> Result<Restored, Failure> {
    let installation = installation_lock(tx.conn()).await?;
    let normal = || {
        Problem::new(Code::InvalidTransition, "The platform is not in restore mode.")
            .suggest("If the database was restored from a backup, run `gpuaasd restore`.")
    };
    Ok(installation.restored.ok_or_else(normal)?)
}

/// One turn over all records and nodes that reported since the restore. Nothing outside that mode. A whole turn that
/// began when every node had reported lets an operator resume.
pub async fn compare(capacity: &Capacity) -> Result<Checked, Failure> {
    let db = &capacity.db;
    let origin = Origin::internal(CorrelationId(db.ambient().uuid()));
    let permit = Permit::system("compare records with nodes after a restore", origin);
    let began = db.ambient().now();
    let mut read = db.read(&permit).await?;
    let installation = installation_get(read.conn()).await?;
    let Some(restored) = installation.restored else { return Ok(Checked::default()) };
    let all_heard = nodes_unheard(read.conn(), restored.at, 1).await?.is_empty();
    drop(read);
    let belief = Belief::unchanged_since(restored.at);
    let mut all = check_by(capacity, None, belief).await?;
    while let Some(after) = all.next_node {
        let more = check_by(capacity, Some(after), belief).await?;
        all.new.extend(more.new);
        all.resolved += more.resolved;
        (all.open, all.next_node) = (more.open, more.next_node);
    }
    if all_heard {
        installation_compared(db, restored.at, began).await?;
    }
    Ok(all)
}
