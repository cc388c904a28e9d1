//! What money says, and what is released for it.

use std::time::Duration;

use async_trait::async_trait;
use billing::api::events::{BalanceDepleted, BudgetCrossed};
use bus::{ConsumeError, ConsumerPolicy, Reconciler, decode};
use kernel::{CorrelationId, Event as _, Stream, event::Envelope};
use pg::Origin;

use crate::{
    Capacity,
    service::{
        forced::{Forced, release_all},
        money::Due,
    },
};

/// A release has many transactions: few at once.
fn policy() -> ConsumerPolicy {
    ConsumerPolicy { concurrency: 2, handler_timeout: Duration::from_secs(90), ..ConsumerPolicy::default() }
}

fn origin(envelope: &Envelope) -> Origin {
    Origin {
        correlation_id: CorrelationId(envelope.correlation_id),
        source_ip: None,
        traceparent: envelope.traceparent.clone(),
    }
}

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
    const NAME: &'static str = "capacity-depletion";
    const STREAM: Stream = Stream::Billing;
    const EVENT_TYPES: &'static [&'static str] = &[BalanceDepleted::TYPE];
    const AUDIT_ACTION: &'static str = "allocation.depletion_handled";
    const REASON: &'static str = "the balance of an organization is used up";

    fn policy(&self) -> ConsumerPolicy {
        policy()
    }

    async fn reconcile(&self, envelope: &Envelope) -> Result<(), ConsumeError> {
        let event: BalanceDepleted = decode(envelope)?;
        let due = Due::Depletion(event.org_id);
        log(due, release_all(&self.0, due, &origin(envelope)).await?);
        Ok(())
    }
}

/// A project has spent its budget, and may want what it runs released for that.
pub struct BudgetConsumer(pub Capacity);

#[async_trait]
impl Reconciler for BudgetConsumer {
    const NAME: &'static str = "capacity-budgets";
    const STREAM: Stream = Stream::Billing;
    const EVENT_TYPES: &'static [&'static str] = &[BudgetCrossed::TYPE];
    const AUDIT_ACTION: &'static str = "allocation.budget_handled";
    const REASON: &'static str = "a project has spent its budget";

    fn policy(&self) -> ConsumerPolicy {
        policy()
    }

    async fn reconcile(&self, envelope: &Envelope) -> Result<(), ConsumeError> {
        let event: BudgetCrossed = decode(envelope)?;
        if event.action != "release" {
            return Ok(());
        }
        let due = Due::Budget(event.org_id, event.project_id);
        log(due, release_all(&self.0, due, &origin(envelope)).await?);
        Ok(())
    }
}
