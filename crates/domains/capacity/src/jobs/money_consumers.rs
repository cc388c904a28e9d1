//! What money says, and what is released for it.

use async_trait::async_trait;
use bus::{ConsumeError, ConsumerPolicy, Reconciler};
use events::{
    ConsumerName,
    billing::{BalanceDepleted, BudgetAction, BudgetCrossed, SpendCapReached},
};
use kernel::event::Envelope;

use super::{envelope_origin, reconciler_policy};
use crate::{
    Capacity,
    service::{
        forced::{Forced, release_all},
        money::Due,
    },
};

fn log(due: Due, forced: Forced) {
    tracing::info!(
        ?due,
        released = forced.released,
        stopped = forced.stopped,
        "allocations were released for money"
    );
}

/// The balance is used up: everything that runs is released.
pub struct DepletionConsumer(pub Capacity);

#[async_trait]
impl Reconciler for DepletionConsumer {
    const NAME: &'static str = ConsumerName::Depletion.name();
    type Events = BalanceDepleted;
    const AUDIT_ACTION: &'static str = "allocation.depletion_handled";
    const REASON: &'static str = "the balance of an organization is used up";

    fn policy(&self) -> ConsumerPolicy {
        reconciler_policy()
    }

    async fn reconcile(&self, event: &BalanceDepleted, envelope: &Envelope) -> Result<(), ConsumeError> {
        let due = Due::Depletion(event.org_id);
        log(due, release_all(&self.0, due, &envelope_origin(envelope)).await?);
        Ok(())
    }
}

/// A project has spent its budget, and may want what it runs released for that.
pub struct BudgetConsumer(pub Capacity);

#[async_trait]
impl Reconciler for BudgetConsumer {
    const NAME: &'static str = ConsumerName::Budgets.name();
    type Events = BudgetCrossed;
    const AUDIT_ACTION: &'static str = "allocation.budget_handled";
    const REASON: &'static str = "a project has spent its budget";

    fn policy(&self) -> ConsumerPolicy {
        reconciler_policy()
    }

    async fn reconcile(&self, event: &BudgetCrossed, envelope: &Envelope) -> Result<(), ConsumeError> {
        if event.action != BudgetAction::Release {
            return Ok(());
        }
        let due = Due::Budget(event.org_id, event.project_id);
        log(due, release_all(&self.0, due, &envelope_origin(envelope)).await?);
        Ok(())
    }
}

/// A service account has spent its cap: what it launched is released.
pub struct SpendCapConsumer(pub Capacity);

#[async_trait]
impl Reconciler for SpendCapConsumer {
    const NAME: &'static str = ConsumerName::SpendCaps.name();
    type Events = SpendCapReached;
    const AUDIT_ACTION: &'static str = "allocation.spend_cap_handled";
    const REASON: &'static str = "a service account has spent its cap";

    fn policy(&self) -> ConsumerPolicy {
        reconciler_policy()
    }

    async fn reconcile(&self, event: &SpendCapReached, envelope: &Envelope) -> Result<(), ConsumeError> {
        let due = Due::SpendCap(event.org_id, event.service_account_id);
        log(due, release_all(&self.0, due, &envelope_origin(envelope)).await?);
        Ok(())
    }
}
