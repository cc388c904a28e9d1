//! What a launch sets aside, and meters that open and close.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, Problem,
    ids::{AllocationId, PostingId},
    policy::keys,
};
use pg::{Connection, WriteTx};

use identity::api::Where;

use crate::{
    Billing,
    model::{
        meter::{Launch, LaunchMeter},
        rating,
    },
    store::meters,
};

/// Whether there is enough for a launch, without setting anything aside: a refusal before any work is done. What
/// decides is [`funds_hold`].
pub async fn funds_check(billing: &Billing, conn: &mut Connection, launch: &Launch) -> Result<(), Failure> {
    let seconds = hold_seconds(billing, launch).await?;
    let (balances, _) = super::balance::balances_of(billing, conn, launch.org).await?;
    let (price, units) = (launch.unit_price_minor, launch.units);
    let members = i64::try_from(launch.allocations.len())?;
    let needed =
        rating::usage_cost_rounded_up(price, units, seconds).and_then(|each| each.checked_mul(members));
    let needed =
        needed.ok_or_else(|| Failure::bug(format!("the cost of {units} units at {price} overflows")))?;
    let available = balances.available();
    if available < needed || (available <= 0 && rating::usage_cost_rounded_up(price, units, 1) != Some(0)) {
        return Err(insufficient(available, needed, &launch.currency).into());
    }
    Ok(())
}

/// Sets the cost of the first time aside and makes the meters, in the transaction of the launch. Launches of one
/// organization are serial from here to their end.
pub async fn funds_hold(billing: &Billing, tx: &mut WriteTx, launch: &Launch) -> Result<(), Failure> {
    let seconds = hold_seconds(billing, launch).await?;
    let ambient = tx.db().ambient().clone();
    let meters: Vec<LaunchMeter> = launch
        .allocations
        .iter()
        .map(|allocation| LaunchMeter { id: ambient.id(), allocation: *allocation })
        .collect();
    let posting: PostingId = ambient.id();
    let held = match meters::hold(tx, launch, &meters, seconds, posting).await {
        Ok(held) => held,
        Err(error) if pg::constraint_violated(&error) == Some("ledger_currency") => {
            let text = format!(
                "This product is sold in {}, but your balance is in another currency.",
                launch.currency
            );
            return Err(Problem::new(Code::Unprocessable, text).into());
        }
        Err(error) => return Err(error.into()),
    };
    match held.answer.as_str() {
        "ok" => Ok(()),
        "budget_blocked" => {
            let text = "This project has used up its monthly budget; new launches are blocked.";
            Err(Problem::new(Code::InsufficientBalance, text)
                .detail("reason", "budget_blocked")
                .suggest("Ask an administrator of the organization to raise the budget, or wait for the next month.")
                .into())
        }
        _ => Err(insufficient(held.available, held.needed, &launch.currency).into()),
    }
}

async fn hold_seconds(billing: &Billing, launch: &Launch) -> Result<i64, Failure> {
    let place = Where { org: Some(launch.org), project: Some(launch.project), ..Where::default() };
    let key = keys::BILLING_LAUNCH_HOLD_SECONDS;
    Ok(billing.policies.setting_at(key, place).await?.get())
}

fn insufficient(available: i64, needed: i64, currency: &str) -> Problem {
    let text = format!(
        "The launch needs a hold of {}, but only {} is available.",
        kernel::money::money(needed, currency),
        kernel::money::money(available, currency)
    );
    Problem::new(Code::InsufficientBalance, text)
        .detail("available_minor", available)
        .detail("needed_minor", needed)
        .detail("currency", currency)
        .suggest("Top up with POST /api/v1/orgs/{org_id}/billing/topups, or `gpuaas billing topup`.")
}

/// The allocation became active at `at`.
pub async fn meter_open(
    tx: &mut WriteTx,
    allocation: AllocationId,
    at: DateTime<Utc>,
) -> Result<(), Failure> {
    if meters::open(tx, allocation, at).await? {
        return Ok(());
    }
    Err(Failure::bug(format!("{allocation} has no meter to open")))
}

/// It stopped being active at `at`.
pub async fn meter_close(
    tx: &mut WriteTx,
    allocation: AllocationId,
    at: DateTime<Utc>,
) -> Result<(), Failure> {
    if meters::close(tx, allocation, at).await? {
        return Ok(());
    }
    Err(Failure::bug(format!("{allocation} has no meter to close")))
}

/// The launch failed before its meter was opened: what was set aside goes back.
pub async fn launch_failed(tx: &mut WriteTx, allocation: AllocationId) -> Result<(), Failure> {
    meters::void(tx, allocation).await?;
    Ok(())
}
