//! What a launch sets aside, and meters that open and close.

use chrono::{DateTime, Utc};
use kernel::{
    Code, Failure, Problem,
    ids::{AllocationId, OrgId, PostingId, ProjectId},
    policy::keys,
};
use pg::{Connection, WriteTx};
use uuid::Uuid;

use identity::api::Where;

use crate::{
    Billing,
    model::{
        account::Balances,
        launch_funds::{Depletion, FundsRefusal, LaunchFunds},
        meter::{Launch, LaunchMeter},
    },
    service::accrual::window_seconds,
    store::{ledger, meters},
};

/// What decides about the money of a launch in this project by this person or account, as it is now. Nothing is locked: what decides is
/// [`funds_hold`].
pub async fn launch_funds(
    billing: &Billing,
    conn: &mut Connection,
    (org, project): (OrgId, ProjectId),
    launcher: Option<Uuid>,
) -> Result<LaunchFunds, Failure> {
    let hold_seconds = hold_seconds(billing, org, project).await?;
    let now = billing.db.ambient().now();
    let known = ledger::launch_balances(conn, (org, project), launcher, now).await?;
    let (balances, currency) = match known.balances {
        Some((balances, currency)) => (balances, Some(currency)),
        None => (Balances::default(), None),
    };
    Ok(LaunchFunds {
        available_minor: balances.available(),
        currency,
        hold_seconds,
        budget_blocked: known.budget_blocked,
        cap_left_minor: known.cap_left_minor,
        total_minor: balances.total(),
        burn_per_hour: known.burn_per_hour,
        unposted_parts: known.unposted_parts,
        window_seconds: window_seconds(billing).await?,
        now,
    })
}

/// Whether there is enough for a launch, without setting anything aside: a refusal before any work is done. Answers when
/// the balance ends with it.
pub async fn funds_check(
    billing: &Billing,
    conn: &mut Connection,
    launch: &Launch,
) -> Result<Option<Depletion>, Failure> {
    let funds = launch_funds(billing, conn, (launch.org, launch.project), launch.person).await?;
    match funds.decide(launch.cost()) {
        Ok(_) => Ok(funds.depletion(launch.cost())),
        Err(refusal) => Err(funds_problem(refusal, &launch.currency).into()),
    }
}

/// Sets the cost of the first time aside and makes the meters, in the transaction of the launch. Launches of one
/// organization are serial from here to their end.
pub async fn funds_hold(billing: &Billing, tx: &mut WriteTx, launch: &Launch) -> Result<(), Failure> {
    let seconds = hold_seconds(billing, launch.org, launch.project).await?;
    let ambient = tx.db().ambient().clone();
    let meters: Vec<LaunchMeter> = launch
        .allocations
        .iter()
        .map(|allocation| LaunchMeter { id: ambient.id(), allocation: *allocation })
        .collect();
    let posting: PostingId = ambient.id();
    let refusal = match meters::hold(tx, launch, &meters, seconds, posting).await {
        Ok(held) => match held.answer.as_str() {
            "ok" => return Ok(()),
            "budget_blocked" => FundsRefusal::BudgetBlocked,
            "spend_cap" => FundsRefusal::SpendCap { left_minor: held.available, needed_minor: held.needed },
            _ => FundsRefusal::Insufficient { available_minor: held.available, needed_minor: held.needed },
        },
        Err(error) if pg::constraint_violated(&error) == Some("ledger_currency") => FundsRefusal::Currency,
        Err(error) => return Err(error.into()),
    };
    Err(funds_problem(refusal, &launch.currency).into())
}

/// A refusal as a client gets it. The price is in this currency.
pub fn funds_problem(refusal: FundsRefusal, currency: &str) -> Problem {
    let problem = match refusal {
        FundsRefusal::Currency => {
            let text =
                format!("This product is sold in {currency}, but your balance is in another currency.");
            Problem::new(Code::Unprocessable, text)
        }
        FundsRefusal::BudgetBlocked => {
            let text = "This project has used up its monthly budget; new launches are blocked.";
            Problem::new(Code::InsufficientBalance, text).suggest(
                "Ask an administrator of the organization to raise the budget, or wait for the next month.",
            )
        }
        FundsRefusal::SpendCap { left_minor, needed_minor } => {
            let text = format!(
                "The launch needs a hold of {}, but only {} is left of the service account's spend cap for this month.",
                kernel::money::money(needed_minor, currency),
                kernel::money::money(left_minor, currency)
            );
            Problem::new(Code::InsufficientBalance, text)
                .detail("left_minor", left_minor)
                .detail("needed_minor", needed_minor)
                .detail("currency", currency)
                .suggest(
                    "Ask an owner or admin of the organization to raise it with `gpuaas service-accounts spend-cap set`, \
                     release machines of the account, or wait for the next month.",
                )
        }
        FundsRefusal::Insufficient { available_minor, needed_minor } => {
            let text = format!(
                "The launch needs a hold of {}, but only {} is available.",
                kernel::money::money(needed_minor, currency),
                kernel::money::money(available_minor, currency)
            );
            Problem::new(Code::InsufficientBalance, text)
                .detail("available_minor", available_minor)
                .detail("needed_minor", needed_minor)
                .detail("currency", currency)
                .suggest("Top up with `gpuaas billing topup AMOUNT`.")
        }
    };
    problem.detail("reason", refusal.reason())
}

async fn hold_seconds(billing: &Billing, org: OrgId, project: ProjectId) -> Result<i64, Failure> {
    let place = Where { org: Some(org), project: Some(project), ..Where::default() };
    let key = keys::BILLING_LAUNCH_HOLD_SECONDS;
    Ok(billing.policies.setting_at(key, place).await?.get())
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
