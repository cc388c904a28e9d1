//! A consumer: a stable name, what it takes, and an effect inside a transaction it cannot commit. A reconciler has its
//! effects in transactions of its own instead, while none of the bus is open.

use std::sync::Arc;

use async_trait::async_trait;
use events::EventSet;
use kernel::{Code, Failure, Problem, event::Envelope};
use pg::WriteTx;

use crate::{ConsumerPolicy, ConsumerSpec, dead_letter::Class};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why an event could not be handled, and whether trying again can help.
#[derive(Debug, thiserror::Error)]
pub enum ConsumeError {
    #[error("handling the event failed for now")]
    Transient(#[source] BoxError),
    #[error("the event cannot be handled")]
    Permanent(#[source] BoxError),
}

impl ConsumeError {
    pub fn transient(error: impl Into<BoxError>) -> Self {
        Self::Transient(error.into())
    }

    pub fn permanent(error: impl Into<BoxError>) -> Self {
        Self::Permanent(error.into())
    }

    pub fn class(&self) -> Class {
        match self {
            Self::Transient(_) => Class::Transient,
            Self::Permanent(_) => Class::Permanent,
        }
    }

    fn classed(transient: bool, error: BoxError) -> Self {
        if transient { Self::Transient(error) } else { Self::Permanent(error) }
    }
}

impl From<sqlx::Error> for ConsumeError {
    fn from(error: sqlx::Error) -> Self {
        Self::classed(pg::is_transient(&error), error.into())
    }
}

impl From<pg::Error> for ConsumeError {
    fn from(error: pg::Error) -> Self {
        Self::classed(error.is_transient(), error.into())
    }
}

impl From<serde_json::Error> for ConsumeError {
    fn from(error: serde_json::Error) -> Self {
        Self::Permanent(error.into())
    }
}

/// A lost race and a service that is away pass; any other problem is about the event itself. What a use
/// case calls internal is tried again, unless the database says that it cannot work.
impl From<Failure> for ConsumeError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Problem(problem) => Self::classed(passes(&problem), problem.to_string().into()),
            Failure::Internal(error) => {
                let transient = match (error.downcast_ref::<sqlx::Error>(), error.downcast_ref::<pg::Error>())
                {
                    (Some(error), _) => pg::is_transient(error),
                    (_, Some(error)) => error.is_transient(),
                    _ => !error.is::<serde_json::Error>(),
                };
                Self::classed(transient, error)
            }
            Failure::Bug(bug) => {
                telemetry::bug_found("a consumer", &bug.to_string());
                Self::Permanent(bug.to_string().into())
            }
        }
    }
}

impl From<Problem> for ConsumeError {
    fn from(problem: Problem) -> Self {
        Failure::from(problem).into()
    }
}

fn passes(problem: &Problem) -> bool {
    problem.code == Code::Conflict || problem.code.status() == 429 || problem.code.status() >= 500
}

/// Handles events of one stream.
#[async_trait]
pub trait Consumer: Send + Sync + 'static {
    /// Durable: a renamed consumer is a new one. Those of the product are listed in [`events::ConsumerName`].
    const NAME: &'static str;
    /// What it takes: an event type, or several as an [`events::event_set!`].
    type Events: EventSet;
    /// What the audit row of the effect says.
    const AUDIT_ACTION: &'static str = "bus.consume";
    /// Why the product acts by itself.
    const REASON: &'static str = "handle an event";

    fn policy(&self) -> ConsumerPolicy {
        ConsumerPolicy::default()
    }

    /// Whether there is anything to do for the event, as far as it says so itself. One that does not concern the consumer
    /// leaves no trace: no transaction, and no row in the audit trail.
    fn concerns(&self, _: &Self::Events) -> bool {
        true
    }

    /// Has its effect through `tx`, which commits with the inbox record when this returns `Ok` and has no
    /// effect at all otherwise. It may run again for the same event, so whatever is not in `tx` must bear
    /// repetition. When the event belongs to an organization, audit and emitted events do too.
    async fn handle(
        &self,
        tx: &mut WriteTx,
        event: &Self::Events,
        envelope: &Envelope,
    ) -> Result<(), ConsumeError>;
}

/// Takes an event as a reason to compare what is with what should be. It works in transactions of its own, as many as it
/// needs, and holds none of the bus meanwhile: a consumer that opened others beside its own would hold one connection
/// of the pool while it waits for another. It may run again for the same event and then finds nothing to do.
#[async_trait]
pub trait Reconciler: Send + Sync + 'static {
    /// Durable, as that of a [`Consumer`].
    const NAME: &'static str;
    /// What it takes: an event type, or several as an [`events::event_set!`].
    type Events: EventSet;
    /// What the audit row says that is written when it is done.
    const AUDIT_ACTION: &'static str;
    /// Why the product acts by itself.
    const REASON: &'static str;

    fn policy(&self) -> ConsumerPolicy {
        ConsumerPolicy::default()
    }

    async fn reconcile(&self, event: &Self::Events, envelope: &Envelope) -> Result<(), ConsumeError>;
}

/// A consumer, whatever it takes.
pub(crate) trait Handle: Send + Sync {
    /// The event as the consumer reads it; nothing when it takes no such event (any more). What does not fit will not fit
    /// next time either.
    fn read<'a>(&'a self, envelope: &'a Envelope) -> Result<Option<Box<dyn Work + 'a>>, ConsumeError>;
}

/// An event in the hands of a consumer that can read it.
#[async_trait]
pub(crate) trait Work: Send + Sync {
    fn concerns(&self) -> bool;
    /// Before the transaction.
    async fn reconcile(&self) -> Result<(), ConsumeError>;
    async fn handle(&self, tx: &mut WriteTx) -> Result<(), ConsumeError>;
}

struct Erase<C>(C);

struct Consumed<'a, C: Consumer> {
    consumer: &'a C,
    event: C::Events,
    envelope: &'a Envelope,
}

impl<C: Consumer> Handle for Erase<C> {
    fn read<'a>(&'a self, envelope: &'a Envelope) -> Result<Option<Box<dyn Work + 'a>>, ConsumeError> {
        let consumed = |event| Box::new(Consumed { consumer: &self.0, event, envelope }) as Box<dyn Work>;
        Ok(C::Events::decode(envelope)?.map(consumed))
    }
}

#[async_trait]
impl<C: Consumer> Work for Consumed<'_, C> {
    fn concerns(&self) -> bool {
        self.consumer.concerns(&self.event)
    }

    async fn reconcile(&self) -> Result<(), ConsumeError> {
        Ok(())
    }

    async fn handle(&self, tx: &mut WriteTx) -> Result<(), ConsumeError> {
        self.consumer.handle(tx, &self.event, self.envelope).await
    }
}

struct EraseReconciler<R>(R);

struct Reconciled<'a, R: Reconciler> {
    reconciler: &'a R,
    event: R::Events,
    envelope: &'a Envelope,
}

impl<R: Reconciler> Handle for EraseReconciler<R> {
    fn read<'a>(&'a self, envelope: &'a Envelope) -> Result<Option<Box<dyn Work + 'a>>, ConsumeError> {
        let reconciled =
            |event| Box::new(Reconciled { reconciler: &self.0, event, envelope }) as Box<dyn Work>;
        Ok(R::Events::decode(envelope)?.map(reconciled))
    }
}

#[async_trait]
impl<R: Reconciler> Work for Reconciled<'_, R> {
    fn concerns(&self) -> bool {
        true
    }

    async fn reconcile(&self) -> Result<(), ConsumeError> {
        self.reconciler.reconcile(&self.event, self.envelope).await
    }

    async fn handle(&self, _: &mut WriteTx) -> Result<(), ConsumeError> {
        Ok(())
    }
}

/// A consumer as a runner holds it, so that a list can hold different ones.
#[derive(Clone)]
pub struct Registration {
    pub(crate) name: &'static str,
    pub(crate) spec: ConsumerSpec,
    pub(crate) audit_action: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) policy: ConsumerPolicy,
    pub(crate) handler: Arc<dyn Handle>,
}

fn spec<S: EventSet>(name: &str) -> ConsumerSpec {
    ConsumerSpec {
        name: name.to_owned(),
        stream: S::STREAM.name().to_owned(),
        event_types: S::TYPES.iter().map(|t| (*t).to_owned()).collect(),
    }
}

impl Registration {
    pub fn for_consumer<C: Consumer>(consumer: C) -> Self {
        Self {
            name: C::NAME,
            spec: spec::<C::Events>(C::NAME),
            audit_action: C::AUDIT_ACTION,
            reason: C::REASON,
            policy: consumer.policy(),
            handler: Arc::new(Erase(consumer)),
        }
    }

    pub fn reconciling<R: Reconciler>(reconciler: R) -> Self {
        Self {
            name: R::NAME,
            spec: spec::<R::Events>(R::NAME),
            audit_action: R::AUDIT_ACTION,
            reason: R::REASON,
            policy: reconciler.policy(),
            handler: Arc::new(EraseReconciler(reconciler)),
        }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn spec(&self) -> &ConsumerSpec {
        &self.spec
    }

    /// Whether the consumer takes the event and can read it.
    pub fn can_read(&self, envelope: &Envelope) -> Result<bool, ConsumeError> {
        Ok(self.handler.read(envelope)?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_classed_by_whether_trying_again_can_help() {
        let class = |failure: Failure| ConsumeError::from(failure).class();
        for code in [Code::Conflict, Code::ServiceUnavailable, Code::RateLimitExceeded] {
            assert_eq!(class(Problem::from_code(code).into()), Class::Transient, "{code:?}");
        }
        for code in [Code::NotFound, Code::ValidationError, Code::InvalidTransition] {
            assert_eq!(class(Problem::from_code(code).into()), Class::Permanent, "{code:?}");
        }
        assert_eq!(class(sqlx::Error::PoolTimedOut.into()), Class::Transient);
        assert_eq!(class(pg::Error::Statement(sqlx::Error::RowNotFound).into()), Class::Permanent);
        assert_eq!(class(std::io::Error::from(std::io::ErrorKind::TimedOut).into()), Class::Transient);
        assert_eq!(class(Failure::bug("a meter that is not there")), Class::Permanent);
    }
}
