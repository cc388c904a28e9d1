//! What other domains ask before they act on how an organization stands.

use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{AllocationId, OrgId, ProjectId},
};
use pg::{Connection, WriteTx};

use crate::{model::balance::BalanceState, store::balance_checks};

/// Whether the balance is used up, decided for this transaction: nothing is posted for the organization before it
/// ends, so a top-up comes before (and this says no) or after. In a transaction of the platform that holds
/// the allocation, if any, and no meter yet.
pub async fn is_depleted(tx: &mut WriteTx, org: OrgId) -> Result<bool, Failure> {
    if !balance_checks::chain_lock(tx, org).await? {
        return Ok(false);
    }
    Ok(balance_checks::state(tx.conn(), org).await? == Some(BalanceState::Depleted))
}

/// Whether the project has spent its budget of this month and wants what it runs released for it.
pub async fn must_release_project(tx: &mut WriteTx, project: ProjectId) -> Result<bool, Failure> {
    let now = tx.db().ambient().now();
    Ok(balance_checks::budget_releases(tx.conn(), project, now).await?)
}

/// Projects for which [`must_release_project`] holds and that still run or launch something; after this one, by id.
pub async fn budgets_overdue(
    conn: &mut Connection,
    after: ProjectId,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(OrgId, ProjectId)>, Failure> {
    Ok(balance_checks::budgets_overdue(conn, after, now, limit).await?)
}

/// Whether there is a meter for it: what was launched before the installation charged has none.
pub async fn is_metered(conn: &mut Connection, allocation: AllocationId) -> Result<bool, Failure> {
    Ok(balance_checks::has_meter(conn, allocation).await?)
}

/// Organizations whose balance was used up before `before` and for which something still runs or is launched, those
/// that waited longest first.
pub async fn overdue(
    conn: &mut Connection,
    before: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<OrgId>, Failure> {
    Ok(balance_checks::overdue(conn, before, limit).await?)
}
