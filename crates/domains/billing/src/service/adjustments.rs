//! Postings that administrators ask for: made at once while they are small in sum, and with a second administrator otherwise.

use identity::api::{Where, org_find};
use kernel::{
    Code, Failure, Page, PageQuery, Problem,
    ids::{AdjustmentId, OrgId, PostingId, UserId},
    policy::keys,
    text::Reason,
};
use lifecycle::{Lifecycle as _, Named as _};
use pg::{ReadTx, WriteTx, changed, created, found};

use crate::{
    Billing,
    model::{
        account::Posting,
        adjustment::{
            Adjustment, AdjustmentEvent, AdjustmentKind, AdjustmentLifecycle, AdjustmentState, SUMMED_OVER,
            check, may_decide, needs_approval, posting_kind, posting_lines,
        },
    },
    service::{balance::balances_of, credits::credit_approved, posting::post},
    store::{adjustments as store, fault_credits},
};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub org: OrgId,
    pub kind: AdjustmentKind,
    pub amount_minor: i64,
    pub reason: Reason,
    pub corrects: Option<PostingId>,
}

/// Asks for an adjustment: it is posted at once, or waits for another administrator when it, with what this clerk and
/// what anybody for this organization posted alone in the last day, is above the policy.
pub async fn adjustment_create(
    billing: &Billing,
    tx: &mut WriteTx,
    by: UserId,
    wanted: Wanted,
) -> Result<Adjustment, Failure> {
    check(wanted.kind, wanted.amount_minor, wanted.corrects)?;
    found(org_find(tx.conn(), wanted.org).await?, "organization")?;
    if let Some(posting) = wanted.corrects
        && !store::posting_exists(tx.conn(), wanted.org, posting).await?
    {
        let text = "is not a posting of this organization's ledger";
        return Err(Problem::field("corrects_entry_id", text).into());
    }
    let (_, currency) = balances_of(billing, tx.conn(), wanted.org).await?;
    let ambient = billing.db.ambient();
    let now = ambient.now();
    let mut adjustment = Adjustment {
        id: ambient.id(),
        org_id: wanted.org,
        kind: wanted.kind,
        amount_minor: wanted.amount_minor,
        currency,
        corrects_entry_id: wanted.corrects,
        reason: wanted.reason.into_string(),
        state: AdjustmentLifecycle::INITIAL,
        proposed_by: Some(by),
        fault: None,
        decided_by: None,
        seq: None,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    let place = Where { org: Some(wanted.org), ..Where::default() };
    // Read over this connection: whoever waits for the lock below holds one, and none may be left.
    billing.policies.warm(tx.conn(), &[None, Some(wanted.org)]).await?;
    let limit = billing.policies.setting_at(keys::BILLING_ADJUSTMENT_APPROVAL_MINOR, place).await?;
    // Serial from here: two at once cannot both be the last that fits.
    store::lock_sums(tx.conn()).await?;
    let before = store::unapproved(tx.conn(), wanted.org, by, now - SUMMED_OVER).await?;
    if !needs_approval(wanted.amount_minor, before, limit) {
        adjustment.seq = Some(make(billing, tx, wanted.kind, &adjustment).await?);
        adjustment.state = AdjustmentState::Posted;
        adjustment.decided_by = Some(by);
    }
    store::insert(tx.conn(), &adjustment).await?;
    if adjustment.decided_by.is_none() {
        tx.emit(&adjustment.waiting())?;
    }
    tx.audit_in_org(adjustment.org_id);
    created(tx, "adjustment", adjustment.id, &adjustment)?;
    Ok(adjustment)
}

/// Posts what another administrator proposed.
pub async fn adjustment_approve(
    billing: &Billing,
    tx: &mut WriteTx,
    by: UserId,
    id: AdjustmentId,
) -> Result<Adjustment, Failure> {
    decide(billing, tx, by, id, AdjustmentEvent::Approve).await
}

/// Refuses what another administrator proposed: it is never posted.
pub async fn adjustment_reject(
    billing: &Billing,
    tx: &mut WriteTx,
    by: UserId,
    id: AdjustmentId,
) -> Result<Adjustment, Failure> {
    decide(billing, tx, by, id, AdjustmentEvent::Reject).await
}

async fn decide(
    billing: &Billing,
    tx: &mut WriteTx,
    by: UserId,
    id: AdjustmentId,
    event: AdjustmentEvent,
) -> Result<Adjustment, Failure> {
    let mut before = found(store::get_for_update(tx.conn(), id).await?, "adjustment")?;
    before.fault = fault_credits::lock(tx.conn(), id).await?;
    tx.audit_in_org(before.org_id);
    let Some(next) = AdjustmentLifecycle::next(before.state, event) else {
        let text = format!("This adjustment is already {}.", before.state);
        return Err(Problem::new(Code::InvalidTransition, text).detail("state", before.state.name()).into());
    };
    may_decide(before.proposed_by, by)?;
    let mut after = before.clone();
    if next == AdjustmentState::Posted {
        after.seq = Some(match &before.fault {
            Some(fault) => credit_approved(billing, tx, &mut after, fault).await?,
            None => make(billing, tx, before.kind, &before).await?,
        });
    }
    after.state = next;
    after.decided_by = Some(by);
    after.version += 1;
    after.updated_at = billing.db.ambient().now();
    store::decide(tx.conn(), &after).await?;
    changed(tx, "adjustment", id, &before, &after)?;
    Ok(after)
}

/// Posts it, with the adjustment as the reference: whatever happens, there is one posting for it.
async fn make(
    billing: &Billing,
    tx: &mut WriteTx,
    kind: AdjustmentKind,
    adjustment: &Adjustment,
) -> Result<i64, Failure> {
    let posting = Posting {
        org: adjustment.org_id,
        kind: posting_kind(kind),
        reference: Some(adjustment.id.to_string()),
        reason: adjustment.reason.clone(),
        corrects: adjustment.corrects_entry_id,
        lines: posting_lines(kind, adjustment.amount_minor),
    };
    let posted = post(billing, tx, posting).await?;
    let posted = posted.ok_or_else(|| Failure::bug(format!("{} was posted before", adjustment.id)))?;
    Ok(posted.seq)
}

pub async fn adjustment_get(tx: &mut ReadTx, id: AdjustmentId) -> Result<Adjustment, Failure> {
    let mut adjustment = [found(store::get(tx.conn(), id).await?, "adjustment")?];
    add_faults(tx, &mut adjustment).await?;
    let [adjustment] = adjustment;
    Ok(adjustment)
}

/// Says of those that the product proposed for what that was.
async fn add_faults(tx: &mut ReadTx, adjustments: &mut [Adjustment]) -> Result<(), Failure> {
    let ids: Vec<AdjustmentId> = adjustments.iter().map(|adjustment| adjustment.id).collect();
    for (id, fault) in fault_credits::of_adjustments(tx.conn(), &ids).await? {
        if let Some(adjustment) = adjustments.iter_mut().find(|adjustment| adjustment.id == id) {
            adjustment.fault = Some(fault);
        }
    }
    Ok(())
}

/// Newest first.
pub async fn adjustment_list(
    tx: &mut ReadTx,
    org: Option<OrgId>,
    state: Option<AdjustmentState>,
    page: &PageQuery,
) -> Result<Page<Adjustment>, Failure> {
    let mut rows = store::list(tx.conn(), org, state, page).await?;
    add_faults(tx, &mut rows).await?;
    Ok(page.page(rows, |row| row.id.uuid()))
}

/// How much waits for a second person, for whoever watches.
pub async fn adjustments_measure(billing: &Billing) -> Result<(), Failure> {
    let mut upkeep = billing.db.upkeep("count pending adjustments").await?;
    let (waiting, oldest_seconds) = store::waiting(upkeep.conn(), billing.db.ambient().now()).await?;
    metrics::gauge!("billing_adjustments_waiting").set(waiting as f64);
    metrics::gauge!("billing_adjustments_oldest_seconds").set(oldest_seconds);
    Ok(())
}
