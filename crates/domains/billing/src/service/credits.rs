//! Credits for sick hardware: whoever has it does not pay for it, to the second.
//!
//! The meter stands still from the moment at which the fault began, and what was charged since goes back, each second once,
//! however many faults there were, in whatever order they were heard of, and whether the meter runs, stands still or has
//! ended. It runs again when the fault is over. A rule alone decides only what is small, of hardware in use, and not of the
//! tenant's own making; everything else is an adjustment that the product proposes and a person decides on.
//! What is kept for the tenant names the kind of fault and the times, and nothing of where the hardware stands.

use chrono::{DateTime, Utc};
use identity::api::Where;
use kernel::{
    Code, Failure, Problem,
    ids::{AllocationId, FindingId},
    policy::keys,
};
use lifecycle::Lifecycle as _;
use pg::WriteTx;
use serde_json::{Value, json};

use super::balance;
use crate::{
    Billing,
    model::{
        adjustment::{Adjustment, AdjustmentKind, AdjustmentLifecycle, AdjustmentState},
        events::CreditPosted,
        fault_credit::{FaultCredit, Proposed, ReviewCause, review_cause},
    },
    store::{
        adjustments, balance_checks,
        fault_credits::{self, Quote},
        pauses,
    },
};

/// Why nobody pays.
#[derive(Clone, Copy, Debug)]
pub struct Fault<'a> {
    pub finding: FindingId,
    /// The kind of fault, as `xid.79`.
    pub code: &'a str,
    /// What is faulty, in words that tell nothing of the fleet: `gpu` or `machine`.
    pub part: &'a str,
    pub since: DateTime<Utc>,
    /// When it was resolved; nothing while it lasts.
    pub until: Option<DateTime<Utc>>,
    /// The tenant is root on the machine and can cause such a fault.
    pub tenant_may_be_cause: bool,
}

/// The allocation is not paid for while the fault lasts, or a person is asked whether it is. Whoever does this for several in
/// one transaction goes by organization, then allocation: their chains are held.
pub async fn credit(
    billing: &Billing,
    tx: &mut WriteTx,
    allocation: AllocationId,
    fault: Fault<'_>,
) -> Result<(), Failure> {
    let Some(org) = fault_credits::org_of(tx.conn(), allocation).await? else { return Ok(()) };
    balance_checks::chain_lock(tx, org).await?;
    let now = tx.db().ambient().now();
    let until = fault.until.map_or(now, |until| until.min(now));
    let quote = fault_credits::quote(tx.conn(), allocation, fault.since, until).await?;
    let Some(quote) = quote else { return Ok(()) };
    let mut wanted = FaultCredit {
        allocation_id: allocation,
        finding_id: fault.finding,
        code: fault.code.to_owned(),
        part: fault.part.to_owned(),
        cause: ReviewCause::Amount,
        since: quote.since,
        until: fault.until,
    };
    // The chain is held: nobody waits here for a second connection.
    billing.policies.warm(tx.conn(), &[None, Some(org)]).await?;
    let place = Where { org: Some(org), ..Where::default() };
    let limit = billing.policies.setting_at(keys::BILLING_CREDIT_APPROVAL_MINOR, place).await?;
    let proposed = Proposed {
        amount_minor: quote.amount_minor,
        tenant_may_be_cause: fault.tenant_may_be_cause,
        has_ended: quote.closed_at.is_some(),
    };
    let Some(cause) = review_cause(proposed, limit) else {
        fault_credit_apply(billing, tx, &quote, &wanted).await?;
        return Ok(());
    };
    wanted.cause = cause;
    match cause {
        ReviewCause::TenantRoot => {
            let decided = fault_credits::decision(tx.conn(), allocation, fault.finding).await?;
            match decided {
                // It is for all of the time of the fault, this part of it too.
                Some(AdjustmentState::Proposed | AdjustmentState::Rejected) => return Ok(()),
                Some(AdjustmentState::Posted) => {
                    fault_credit_apply(billing, tx, &quote, &wanted).await?;
                    return Ok(());
                }
                None => {}
            }
            wanted.until = match (fault.until, quote.closed_at) {
                (Some(until), Some(closed)) => Some(until.min(closed)),
                (until, closed) => until.or(closed),
            };
        }
        ReviewCause::Ended => wanted.until = Some(quote.closed_at.map_or(until, |closed| closed.min(until))),
        ReviewCause::Amount => {
            wanted.until = Some(until);
            if fault.until.is_none() {
                // What is charged from now on would only have to go back, too.
                let from_now = FaultCredit { since: now, until: None, ..wanted.clone() };
                fault_credit_apply(billing, tx, &quote, &from_now).await?;
            }
        }
    }
    propose(billing, tx, &quote, wanted).await
}

/// Leaves a credit for a person to decide on. Nothing when there is nothing to give back and will be nothing.
async fn propose(
    billing: &Billing,
    tx: &mut WriteTx,
    quote: &Quote,
    mut wanted: FaultCredit,
) -> Result<(), Failure> {
    wanted.until = wanted.until.map(|until| until.max(wanted.since));
    if (quote.amount_minor <= 0 && wanted.until.is_some())
        || !fault_credits::is_new(tx.conn(), wanted.allocation_id, wanted.finding_id, wanted.since).await?
    {
        return Ok(());
    }
    let (ambient, now) = (billing.db.ambient(), billing.db.ambient().now());
    let adjustment = Adjustment {
        id: ambient.id(),
        org_id: quote.org,
        kind: AdjustmentKind::Credit,
        // As far as it is known now; what is posted is counted when somebody approves it.
        amount_minor: quote.amount_minor.max(1),
        currency: quote.currency.clone(),
        corrects_entry_id: None,
        reason: format!("{}; {}", reason(&wanted), wanted.cause.text()),
        state: AdjustmentLifecycle::INITIAL,
        proposed_by: None,
        fault: Some(wanted),
        decided_by: None,
        seq: None,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    adjustments::insert(tx.conn(), &adjustment).await?;
    if let Some(fault) = &adjustment.fault {
        fault_credits::insert(tx.conn(), adjustment.id, quote.org, fault, now).await?;
    }
    Ok(tx.emit(&adjustment.waiting())?)
}

fn reason(credit: &FaultCredit) -> String {
    format!("faulty hardware ({})", credit.code)
}

/// What the tenant may know of it.
fn evidence(credit: &FaultCredit) -> Value {
    json!({ "code": credit.code, "part": credit.part, "since": credit.since })
}

/// What was given.
#[derive(Clone, Copy, Debug, Default)]
struct AppliedCredit {
    amount_minor: i64,
    seq: Option<i64>,
}

/// Pauses the meter from now on while the fault lasts, and credits what was charged for its time before.
async fn fault_credit_apply(
    billing: &Billing,
    tx: &mut WriteTx,
    quote: &Quote,
    credit: &FaultCredit,
) -> Result<AppliedCredit, Failure> {
    let now = tx.db().ambient().now();
    let (allocation, finding) = (credit.allocation_id, credit.finding_id);
    let reason = reason(credit);
    let evidence = evidence(credit);
    let paused = match credit.until {
        None => pauses::pause(tx, allocation, credit.since, finding, &reason, &evidence).await?,
        Some(_) => None,
    };
    let time = (credit.since, credit.until.unwrap_or(now));
    let back = pauses::charges_credit(tx, allocation, time, finding, &reason, &evidence).await?;
    let since = [paused.as_ref().map(|paused| paused.since), back.map(|back| back.since)];
    let Some(since) = since.into_iter().flatten().min() else { return Ok(AppliedCredit::default()) };
    let given = AppliedCredit {
        amount_minor: paused.as_ref().map_or(0, |paused| paused.credited_minor)
            + back.map_or(0, |back| back.credited_minor),
        seq: back.and_then(|back| back.seq).or(paused.and_then(|paused| paused.seq)),
    };
    tx.emit_for(
        quote.org,
        Some(quote.project),
        &CreditPosted {
            org_id: quote.org,
            project_id: quote.project,
            allocation_id: allocation,
            finding_id: Some(finding),
            since,
            credited_minor: given.amount_minor,
            currency: quote.currency.clone(),
            reason,
            creator_id: quote.creator,
        },
    )?;
    balance::evaluate(billing, tx, quote.org).await?;
    Ok(given)
}

/// Gives what the product proposed and a person approved, and answers its posting.
pub async fn credit_approved(
    billing: &Billing,
    tx: &mut WriteTx,
    adjustment: &mut Adjustment,
    credit: &FaultCredit,
) -> Result<i64, Failure> {
    balance_checks::chain_lock(tx, adjustment.org_id).await?;
    let now = tx.db().ambient().now();
    let until = credit.until.map_or(now, |until| until.min(now));
    let quote = fault_credits::quote(tx.conn(), credit.allocation_id, credit.since, until).await?;
    // Up to now as a time in the past, charged and given back: what was decided stands in the ledger.
    let past = FaultCredit { until: Some(until), ..credit.clone() };
    let given = match &quote {
        Some(quote) => fault_credit_apply(billing, tx, quote, &past).await?,
        None => AppliedCredit::default(),
    };
    let Some(seq) = given.seq else {
        let text = "There are no charges for this period that are not already credited.";
        let problem = Problem::new(Code::Unprocessable, text);
        return Err(problem.suggest("Reject it, or approve it later while the fault lasts.").into());
    };
    if credit.until.is_none() {
        pauses::pause(tx, credit.allocation_id, now, credit.finding_id, &reason(credit), &evidence(credit))
            .await?;
        balance::evaluate(billing, tx, adjustment.org_id).await?;
    }
    adjustment.amount_minor = given.amount_minor;
    fault_credits::amount_set(tx.conn(), adjustment.id, given.amount_minor).await?;
    Ok(seq)
}

/// A meter that runs again.
#[derive(Clone, Copy, Debug)]
pub struct Resumed {
    pub allocation: AllocationId,
    pub at: DateTime<Utc>,
}

/// The fault is over: what stood still because of it runs again, never from before it stood still, and what was proposed
/// for as long as it lasts has an end. Doing it again changes nothing.
pub async fn credit_end(
    tx: &mut WriteTx,
    finding: FindingId,
    at: DateTime<Utc>,
) -> Result<Vec<Resumed>, Failure> {
    // Waits for whoever approves one of them just now: what they make stand still is seen below.
    fault_credits::end(tx.conn(), finding, at).await?;
    let mut resumed = Vec::new();
    for still in pauses::of_finding(tx.conn(), finding).await? {
        let at = at.max(still.since);
        // The chain before the meter, as everywhere.
        balance_checks::chain_lock(tx, still.org).await?;
        let runs = pauses::resume(tx, still.pause, at).await?;
        if let Some(allocation) = still.allocation.filter(|_| runs) {
            resumed.push(Resumed { allocation, at });
        }
    }
    Ok(resumed)
}
