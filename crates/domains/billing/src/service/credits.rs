//! Credits for sick hardware: whoever has it does not pay for it, to the second.
//!
//! The meter stands still from the moment at which the fault began, and what was charged since goes back. It runs
//! again when the fault is over. What had ended before anybody knew of the fault gets its part back as a posting.
//! What is kept for the tenant names the kind of fault and the times, and nothing of where the hardware stands.

use chrono::{DateTime, Utc};
use kernel::{
    Failure,
    ids::{AllocationId, FindingId},
};
use pg::WriteTx;
use serde_json::json;

use super::{balance, posting::post};
use crate::{
    Billing,
    model::{
        account::{Account, Line, Posting, PostingKind},
        events::CreditPosted,
    },
    store::pauses,
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
}

/// The allocation is not paid for while the fault lasts. Nothing changes when it stands still already. Whoever does this for
/// several in one transaction goes by organization, then allocation: their chains are held.
pub async fn credit(
    billing: &Billing,
    tx: &mut WriteTx,
    allocation: AllocationId,
    fault: Fault<'_>,
) -> Result<(), Failure> {
    let reason = format!("faulty hardware ({})", fault.code);
    let evidence = json!({ "code": fault.code, "part": fault.part, "since": fault.since });
    let paused = pauses::pause(tx, allocation, fault.since, fault.finding, &reason, &evidence).await?;
    let Some(paused) = paused else { return credit_ended(billing, tx, allocation, fault, reason).await };
    tx.emit_for(
        paused.org,
        Some(paused.project),
        &CreditPosted {
            org_id: paused.org,
            project_id: paused.project,
            allocation_id: allocation,
            finding_id: Some(fault.finding),
            since: paused.since,
            credited_minor: paused.credited_minor,
            currency: paused.currency,
            reason,
            creator_id: paused.creator,
        },
    )?;
    balance::evaluate(billing, tx, paused.org).await
}

/// Its meter had ended: what it cost since the fault is posted, once for an allocation.
async fn credit_ended(
    billing: &Billing,
    tx: &mut WriteTx,
    allocation: AllocationId,
    fault: Fault<'_>,
    reason: String,
) -> Result<(), Failure> {
    let Some(ended) = pauses::ended(tx.conn(), allocation, fault.since).await? else { return Ok(()) };
    if ended.credit_minor <= 0 {
        return Ok(());
    }
    let line = |account, amount_minor| Line {
        account,
        amount_minor,
        project: Some(ended.project),
        allocation: Some(allocation),
    };
    let posting = Posting {
        org: ended.org,
        kind: PostingKind::Credit,
        reference: Some(format!("fault/{allocation}")),
        reason: reason.clone(),
        corrects: None,
        lines: vec![
            line(Account::Prepaid, ended.credit_minor),
            line(Account::CreditsGranted, -ended.credit_minor),
        ],
    };
    if post(billing, tx, posting).await?.is_none() {
        return Ok(());
    }
    tx.emit_for(
        ended.org,
        Some(ended.project),
        &CreditPosted {
            org_id: ended.org,
            project_id: ended.project,
            allocation_id: allocation,
            finding_id: Some(fault.finding),
            since: ended.from,
            credited_minor: ended.credit_minor,
            currency: ended.currency,
            reason,
            creator_id: ended.creator,
        },
    )?;
    Ok(())
}

/// A meter that runs again.
#[derive(Clone, Copy, Debug)]
pub struct Resumed {
    pub allocation: AllocationId,
    pub at: DateTime<Utc>,
}

/// The fault is over: what stood still because of it runs again, never from before it stood still. Doing it again
/// changes nothing.
pub async fn credit_end(
    tx: &mut WriteTx,
    finding: FindingId,
    at: DateTime<Utc>,
) -> Result<Vec<Resumed>, Failure> {
    let mut resumed = Vec::new();
    for standing in pauses::of_finding(tx.conn(), finding).await? {
        let at = at.max(standing.begun_at);
        // The chain before the meter, as everywhere.
        crate::store::standing::hold(tx, standing.org).await?;
        let runs = pauses::resume(tx, standing.pause, at).await?;
        if let Some(allocation) = standing.allocation.filter(|_| runs) {
            resumed.push(Resumed { allocation, at });
        }
    }
    Ok(resumed)
}
