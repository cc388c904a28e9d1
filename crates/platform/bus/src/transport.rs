//! What carries messages from relays to consumers.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use kernel::event::Envelope;

use crate::dead_letter::Class;

/// An envelope and the stream it belongs to.
#[derive(Clone, Debug)]
pub struct Message {
    pub stream: String,
    pub envelope: Envelope,
}

/// A durable consumer: its stable name and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerSpec {
    pub name: String,
    pub stream: String,
    /// Empty means every type of the stream.
    pub event_types: Vec<String>,
}

/// Proof of a lease, understood only by the transport that gave it. It ends with the lease: when the
/// message was handed to somebody else meanwhile, the transport refuses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt(pub String);

/// A message on lease to one worker.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub consumer: String,
    pub message: Message,
    /// Counts this one; counted when it begins, so that a crash is an attempt too.
    pub attempts: u32,
    pub receipt: Receipt,
}

/// Why a delivery becomes a dead letter, and when it is tried again by itself, if ever.
#[derive(Clone, Debug)]
pub struct Burial {
    pub error: String,
    pub class: Class,
    pub retry_at: Option<DateTime<Utc>>,
}

#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Nothing is wrong with the messages; the same call may work later.
    #[error("the transport cannot be reached or is busy")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The transport will not take this, however often it is tried.
    #[error("the transport refused the message")]
    Rejected(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The lease ended and the message is no longer this worker's.
    #[error("the lease on the message has ended")]
    LeaseLost,
}

/// At least once, never silently less. Every implementation passes [`crate::conformance`].
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Makes the consumer known, or says that it still lives. A new consumer, and a new type of a known
    /// one, begins with what the stream still keeps.
    async fn consumer_ensure(&self, consumer: &ConsumerSpec) -> Result<(), TransportError>;

    /// All or nothing. Publishing an event id again changes nothing.
    async fn publish(&self, messages: &[Message]) -> Result<(), TransportError>;

    /// Up to `max` deliveries, each on lease for `lease`. Does not wait for messages.
    async fn fetch(
        &self,
        consumer: &ConsumerSpec,
        max: usize,
        lease: Duration,
    ) -> Result<Vec<Delivery>, TransportError>;

    async fn ack(&self, delivery: &Delivery) -> Result<(), TransportError>;

    /// Gives the message back, to be delivered again no sooner than `after`.
    async fn retry(&self, delivery: &Delivery, after: Duration, error: &str) -> Result<(), TransportError>;

    /// Takes the message out of the queue and records it as a dead letter.
    async fn dead_letter(&self, delivery: &Delivery, burial: &Burial) -> Result<(), TransportError>;

    /// Forgets messages that their streams no longer keep and that nobody waits for. Called now and then.
    async fn retain(&self) -> Result<u64, TransportError>;
}
