//! Adds up what projects with a budget and service accounts with a spend cap spend, and tells when one reached its threshold.

use kernel::Failure;
use pg::WriteTx;
use uuid::Uuid;

use crate::{
    model::{budget::month_of, events::BudgetCrossed},
    service::{balance::agreed_time, spend_caps},
    store::budgets::{self, Progress},
};

/// Goes on with the budgets and spend caps of organizations whose chains this transaction holds. True when something changed.
pub async fn advance(tx: &mut WriteTx, orgs: &[Uuid]) -> Result<bool, Failure> {
    let now = tx.db().ambient().now();
    let months = month_of(now);
    let mut progress = Vec::new();
    let until = agreed_time(tx.conn(), now).await?;
    for budget in budgets::watched(tx.conn(), orgs, None, months, until).await? {
        let crossing = budget.spending.decide(now);
        if budget.through_seq == budget.seq && crossing.crossed_at == budget.spending.crossed_at {
            continue;
        }
        progress.push(Progress {
            org: budget.org,
            project: budget.project,
            spent_minor: budget.spending.spent_minor,
            unposted_minor: budget.spending.unposted_minor,
            through_seq: budget.seq,
            crossed_at: crossing.crossed_at,
        });
        if crossing.told {
            let event = BudgetCrossed {
                org_id: budget.org,
                project_id: budget.project,
                action: budget.action,
                amount_minor: budget.spending.amount_minor,
                threshold_percent: budget.spending.threshold_percent,
                spent_minor: budget.spending.spent_now_minor(),
                currency: budget.currency,
            };
            tx.emit_for(budget.org, Some(budget.project), &event)?;
        }
    }
    if !progress.is_empty() {
        budgets::progress(tx, months.0, &progress).await?;
    }
    Ok(spend_caps::advance(tx, orgs, now, until).await? || !progress.is_empty())
}
