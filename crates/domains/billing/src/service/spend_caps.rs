//! Spend caps of service accounts: set, shown, removed, and watched with the budgets.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, Problem,
    ids::{OrgId, ProjectId, ServiceAccountId},
};
use pg::{Connection, ReadTx, WriteTx, found, removed};
use uuid::Uuid;

use crate::{
    Billing,
    model::{budget::Spending, budget_resource::check_amount, events::SpendCapReached, spend_cap::SpendCap},
    service::balance::agreed_time,
    store::{budget_rows, spend_caps as store},
};

/// A service account of a project.
#[derive(Clone, Copy, Debug)]
pub struct AccountPlace {
    pub org: OrgId,
    pub project: ProjectId,
    pub account: ServiceAccountId,
}

async fn load(
    billing: &Billing,
    conn: &mut Connection,
    place: AccountPlace,
) -> Result<Option<SpendCap>, Failure> {
    let until = agreed_time(conn, billing.db.ambient().now()).await?;
    let AccountPlace { org, project, account } = place;
    let cap = store::get(conn, (org, project), account, until, billing.currency()).await?;
    if cap.is_none() {
        // The cap of a deleted account goes on holding, and can be changed.
        identity::api::service_account_check(conn, project, account).await?;
    }
    Ok(cap)
}

pub async fn spend_cap_get(
    billing: &Billing,
    tx: &mut ReadTx,
    place: AccountPlace,
) -> Result<SpendCap, Failure> {
    Ok(found(load(billing, tx.conn(), place).await?, "spend_cap")?)
}

/// Makes the cap of an account, or changes it.
pub async fn spend_cap_set(
    billing: &Billing,
    tx: &mut WriteTx,
    place: AccountPlace,
    amount_minor: i64,
    version: Option<i64>,
) -> Result<SpendCap, Failure> {
    check_amount(amount_minor)?;
    let before = load(billing, tx.conn(), place).await?;
    let now = billing.db.ambient().now();
    let AccountPlace { org, project, account } = place;
    let swap = store::set(tx.conn(), (org, project), account, amount_minor, version, now).await?;
    swap.or_problem("spend_cap")?;
    let after = found(load(billing, tx.conn(), place).await?, "spend_cap")?;
    tx.record("spend_cap", account, before.as_ref(), Some(&after))?;
    Ok(after)
}

pub async fn spend_cap_delete(
    billing: &Billing,
    tx: &mut WriteTx,
    place: AccountPlace,
    version: Option<i64>,
) -> Result<(), Failure> {
    let before = found(load(billing, tx.conn(), place).await?, "spend_cap")?;
    let AccountPlace { org, project, account } = place;
    if store::lock_and_find_live(tx.conn(), org, account).await?
        && !budget_rows::is_limited(tx.conn(), org, project).await?
    {
        return Err(still_needed().into());
    }
    store::remove(tx.conn(), place.org, place.account, version).await?.or_problem("spend_cap")?;
    removed(tx, "spend_cap", place.account, &before)
}

fn still_needed() -> Problem {
    let text = "The service account runs allocations, and without the cap nothing would end their spending.";
    Problem::new(Code::Conflict, text)
        .detail("reason", "account_has_allocations")
        .suggest("Release them, raise the cap, or set a budget of the project that releases allocations.")
}

/// Whether something ends the spending of the account: a cap of its own.
pub async fn account_is_capped(conn: &mut Connection, org: OrgId, account: Uuid) -> Result<bool, Failure> {
    Ok(store::exists(conn, org, account).await?)
}

/// Whether the account has spent its cap of this month, as it is now: it may have been raised since it was reached.
pub async fn must_release_account(
    tx: &mut WriteTx,
    org: OrgId,
    account: ServiceAccountId,
) -> Result<bool, Failure> {
    let now = tx.db().ambient().now();
    let until = agreed_time(tx.conn(), now).await?;
    let caps = store::watched(tx.conn(), &[org.uuid()], Some(&[account.uuid()]), until).await?;
    Ok(caps.iter().any(|cap| Spending::from(cap.spending).reached()))
}

/// Accounts that reached their cap and still run or launch something; after this one, by id.
pub async fn spend_caps_overdue(
    conn: &mut Connection,
    after: ServiceAccountId,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(OrgId, ServiceAccountId)>, Failure> {
    Ok(store::overdue(conn, after, now, limit).await?)
}

/// Goes on with the caps of organizations whose chains this transaction holds, with what was used up to `until`. True when
/// something changed.
pub async fn advance(
    tx: &mut WriteTx,
    orgs: &[Uuid],
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<bool, Failure> {
    let mut changed = Vec::new();
    for cap in store::watched(tx.conn(), orgs, None, until).await? {
        let spending = Spending::from(cap.spending);
        let crossing = spending.decide(now);
        if cap.through_seq == cap.seq && crossing.crossed_at == cap.spending.reached_at {
            continue;
        }
        if crossing.told {
            let event = SpendCapReached {
                org_id: cap.org,
                project_id: cap.project,
                service_account_id: cap.account,
                amount_minor: cap.spending.amount_minor,
                spent_minor: spending.spent_now_minor(),
                currency: cap.currency.clone(),
            };
            tx.emit_for(cap.org, Some(cap.project), &event)?;
        }
        changed.push((cap, crossing.crossed_at));
    }
    if !changed.is_empty() {
        store::progress(tx, &changed).await?;
    }
    Ok(!changed.is_empty())
}
