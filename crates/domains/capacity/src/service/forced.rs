//! Money ends what runs: everything of an organization whose balance is used up, of a project that has spent its budget and
//! wants that, or of a service account that has spent its cap.
//!
//! Each allocation is released in a transaction of its own, by the way in which all are released, as long as the
//! reason holds in that very transaction: a top-up in between stops it, and what was released stays released. One
//! that cannot be released now does not keep the others; asking again does the rest.

use std::time::Duration;

use chrono::TimeDelta;
use kernel::{
    Code, CorrelationId, Failure, Problem,
    ids::{AllocationId, ProjectId, ServiceAccountId},
};
use pg::{Origin, Permit};
use tokio::time::Instant;

use super::{
    money::Due,
    release::{allocation_lock, release_for_money},
};
use crate::{
    Capacity,
    model::allocation::{AllocationState, ReleaseCause},
    store::affected_allocations,
};

/// Looked for at once.
const BATCH: i64 = 100;
/// After this the rest is left to the next attempt.
const WITHIN: Duration = Duration::from_secs(60);
/// The event comes first; this is for when it did not do it.
const OVERDUE_AFTER: TimeDelta = TimeDelta::seconds(60);
const OVERDUE_AT_ONCE: i64 = 100;

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forced {
    pub released: usize,
    /// The reason did not hold any more: the rest goes on.
    pub stopped: bool,
}

enum One {
    Released,
    /// It had begun to end already.
    Ending,
    NotDue,
}

/// Releases all that runs or is being launched. An error says that some are left.
pub async fn release_all(capacity: &Capacity, due: Due, origin: &Origin) -> Result<Forced, Failure> {
    let begun = Instant::now();
    let (mut forced, mut failed, mut after) = (Forced::default(), None, None::<AllocationId>);
    loop {
        let some = {
            let mut upkeep = capacity.db.upkeep("find what money ends").await?;
            affected_allocations::allocations_due(upkeep.conn(), due, after, BATCH).await?
        };
        let Some(last) = some.last().copied() else { break };
        after = Some(last);
        for id in some {
            if begun.elapsed() > WITHIN {
                return Err(late().into());
            }
            match release(capacity, due, id, origin).await {
                Ok(One::Released) => forced.released += 1,
                Ok(One::Ending) => {}
                Ok(One::NotDue) => return Ok(Forced { stopped: true, ..forced }),
                Err(failure) => {
                    tracing::warn!(allocation_id = %id, error = ?failure, "cannot be released for now; it is tried again");
                    // What passes is tried again with all of them; a bug of one must not end that.
                    if !matches!((&failed, &failure), (Some(_), Failure::Bug(_))) {
                        failed = Some(failure);
                    }
                }
            }
        }
    }
    failed.map_or(Ok(forced), Err)
}

/// Every project that must not run on by its budget, however the event was lost, and also when the action of the budget
/// changed after it was spent. Whether it holds is decided again with each allocation.
async fn budgets_overdue(capacity: &Capacity) -> Result<Vec<Due>, Failure> {
    let now = capacity.db.ambient().now();
    let (mut dues, mut after) = (Vec::new(), ProjectId::from(uuid::Uuid::nil()));
    loop {
        let mut upkeep = capacity.db.upkeep("find what budgets should have ended").await?;
        let some = capacity.money.budgets_overdue(upkeep.conn(), after, now, OVERDUE_AT_ONCE).await?;
        let Some((_, last)) = some.last() else { return Ok(dues) };
        after = *last;
        dues.extend(some.into_iter().map(|(org, project)| Due::Budget(org, project)));
    }
}

/// Every service account that must not run on by its spend cap, however the event was lost.
async fn spend_caps_overdue(capacity: &Capacity) -> Result<Vec<Due>, Failure> {
    let now = capacity.db.ambient().now();
    let (mut dues, mut after) = (Vec::new(), ServiceAccountId::from(uuid::Uuid::nil()));
    loop {
        let mut upkeep = capacity.db.upkeep("find what spend caps should have ended").await?;
        let some = capacity.money.spend_caps_overdue(upkeep.conn(), after, now, OVERDUE_AT_ONCE).await?;
        let Some((_, last)) = some.last() else { return Ok(dues) };
        after = *last;
        dues.extend(some.into_iter().map(|(org, account)| Due::SpendCap(org, account)));
    }
}

/// Releases what still runs for organizations whose balance was used up a while ago, and for projects and
/// service accounts that have spent a budget or a cap that ends them. They were told of by an event; one that could not be handled must not let anybody run on
/// for nothing. Answers how many were released.
pub async fn release_overdue(capacity: &Capacity) -> Result<usize, Failure> {
    let ambient = capacity.db.ambient();
    let orgs = {
        let mut upkeep = capacity.db.upkeep("find what money should have ended").await?;
        capacity.money.overdue(upkeep.conn(), ambient.now() - OVERDUE_AFTER, OVERDUE_AT_ONCE).await?
    };
    let dues = orgs.into_iter().map(Due::Depletion).chain(budgets_overdue(capacity).await?);
    let dues = dues.chain(spend_caps_overdue(capacity).await?);
    let (mut released, mut failed) = (0, None);
    for due in dues {
        let origin = Origin::internal(CorrelationId(ambient.uuid()));
        match release_all(capacity, due, &origin).await {
            Ok(forced) => released += forced.released,
            // One that cannot be released does not keep the others.
            Err(failure) => failed = Some(failure),
        }
    }
    match failed {
        Some(failure) if released == 0 => Err(failure),
        _ => Ok(released),
    }
}

fn late() -> Problem {
    Problem::new(
        Code::Conflict,
        "More allocations are to be released than could be in time; the rest comes next.",
    )
}

async fn release(capacity: &Capacity, due: Due, id: AllocationId, origin: &Origin) -> Result<One, Failure> {
    let (cause, action, reason) = match due {
        Due::Depletion(_) => {
            (ReleaseCause::Depletion, "allocation.release_for_depletion", "the balance is used up")
        }
        Due::Budget(..) => {
            (ReleaseCause::Budget, "allocation.release_for_budget", "the project's budget is used up")
        }
        // A cause of its own would be unknown to the release before.
        Due::SpendCap(..) => (
            ReleaseCause::Budget,
            "allocation.release_for_spend_cap",
            "the service account's spend cap is used up",
        ),
    };
    let permit = Permit::system("money ends an allocation", origin.clone());
    let mut tx = capacity.db.write(permit, action).await?;
    // The allocation before the ledger, as everywhere.
    let done = async {
        let before = allocation_lock(&mut tx, id).await?;
        if !can_be_released(before.state) || before.release_cause.is_some() {
            return Ok(One::Ending);
        }
        if !capacity.money.is_due(&mut tx, due).await? {
            return Ok(One::NotDue);
        }
        release_for_money(capacity, &mut tx, &before, cause, reason).await?;
        Ok(One::Released)
    };
    match done.await {
        Ok(One::Released) => {
            tx.commit(None).await?;
            metrics::counter!("allocations_forced_total", "cause" => cause.name()).increment(1);
            Ok(One::Released)
        }
        other => {
            tx.roll_back().await;
            other
        }
    }
}

fn can_be_released(state: AllocationState) -> bool {
    matches!(state, AllocationState::Requested | AllocationState::Provisioning | AllocationState::Active)
}
