//! The bus: how what one domain says happened reaches the others, with exactly one effect each.
//!
//! **Path of an event.** A domain emits it inside a write transaction; it becomes a row of `outbox_events`
//! when, and only when, the change commits. The [`Relay`] hands pending rows to the [`Transport`]. The
//! transport keeps one queue per durable consumer. A [`Runner`] leases deliveries, and for each opens one
//! write transaction that holds the inbox record, the consumer's effect, its audit row and its own events.
//!
//! **Promises.**
//! - Every committed event is published at least once, and each consumer that wants it gets it at least once.
//! - Each event has one effect per consumer: the inbox record is unique and commits with the effect, so a
//!   repeated, late or concurrent delivery finds it and does nothing.
//! - Order is not promised. Messages are handed out in the order of publication, but retries, several
//!   replicas and concurrent handlers change it; a consumer decides from state, not from order.
//! - Nothing is lost silently. Failures are retried with backoff; after the limit the message becomes a
//!   [dead letter](dead_letter), which is counted, listed, retried slowly while its cause is transient, and
//!   requeued or discarded by a person. A message stays as long as a consumer has not handled it.
//!
//! **Crashes.** A relay that dies after publishing publishes again (the transport knows event ids). A runner
//! that dies after its commit and before the ack is redelivered to after the lease, and finds the inbox
//! record. One that dies before its commit has had no effect. A handler that kills its process is counted,
//! because attempts are counted when they begin.
//!
//! **Time** comes from the injected clock, also for leases. Clocks of replicas that disagree by more than a
//! lease cause repeated deliveries, never repeated effects.
//!
//! **Another transport** implements [`Transport`] and passes [`conformance`]. JetStream maps like this: a
//! stream per `Stream`, subjects `<STREAM>.<event type>`, `Nats-Msg-Id` = event id; `consumer_ensure` is a
//! durable pull consumer with filter subjects, explicit ack and `ack_wait` = lease; `fetch` is a pull batch,
//! the receipt is the reply subject with its delivery count; `retry` is a delayed NAK, `dead_letter` writes
//! the `dead_letters` row and terminates the message; retention is the stream's `max_age`.

pub mod conformance;
pub mod dead_letter;
pub mod http;
pub mod outbox;

mod consumer;
pub mod periodic;
mod postgres;
mod registry;
mod relay;
mod retry;
mod runner;
mod transport;

use std::sync::Arc;

use pg::{Db, Wake};

pub use consumer::{ConsumeError, Consumer, Reconciler, Registration};
pub use http::endpoints;
pub use postgres::PgTransport;
pub use registry::{RegistryError, consumers_check};
pub use relay::{Relay, RelayError};
pub use retry::ConsumerPolicy;
pub use runner::Runner;
pub use transport::{Burial, ConsumerSpec, Delivery, Message, Receipt, Transport, TransportError};

/// Where the transport says that there is something to fetch.
pub(crate) const BUS_CHANNEL: &str = "gpuaas_bus";
pub(crate) const OUTBOX_CHANNEL: &str = "gpuaas_outbox";

/// What relays and runners of one process share.
#[derive(Clone)]
pub struct Bus {
    db: Db,
    transport: Arc<dyn Transport>,
    wake: Wake,
}

impl Bus {
    /// `wake` comes from `Db::listen`, once per process.
    pub fn new(db: Db, transport: Arc<dyn Transport>, wake: Wake) -> Self {
        Self { db, transport, wake }
    }

    /// The built-in transport on the same database.
    pub fn on_postgres(db: Db, wake: Wake) -> Self {
        let transport = Arc::new(PgTransport::new(db.clone()));
        Self::new(db, transport, wake)
    }

    /// Publishes the outbox and keeps the bus tidy. As many replicas as wanted may run one.
    pub fn relay(&self) -> Relay {
        Relay::new(self.db.clone(), self.transport.clone(), self.wake.clone())
    }

    /// Runs one consumer. As many replicas as wanted may run the same one.
    pub fn runner(&self, registration: Registration) -> Runner {
        Runner::new(self.db.clone(), self.transport.clone(), self.wake.clone(), registration)
    }
}

/// Why the bus writes its own tables.
pub(crate) const UPKEEP: &str = "carry events";

/// An error with its causes, on one line and bounded, as it is stored for people to read.
pub(crate) fn error_text(error: &(dyn std::error::Error + 'static)) -> String {
    const MAX_CHARS: usize = 2000;
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += ": ";
        text += &cause.to_string();
        source = cause.source();
    }
    // Postgres text holds no NUL.
    text.chars().filter(|c| *c != '\0').take(MAX_CHARS).collect()
}
