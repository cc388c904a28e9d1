//! What every transport must do, as checks that a transport's tests run.
//!
//! A [`World`] gives the transport under test and lets time pass in it (a clock moved by hand, or a real
//! wait). [`run_all`] answers with the first rule that does not hold.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use kernel::{Ambient, Stream, event::Envelope};
use uuid::Uuid;

use crate::{Burial, ConsumerSpec, Delivery, Message, Transport, TransportError, dead_letter::Class};

#[async_trait]
pub trait World: Send + Sync {
    fn transport(&self) -> Arc<dyn Transport>;
    fn ambient(&self) -> Ambient;
    /// Lets at least this much of the transport's time pass.
    async fn pass(&self, time: Duration);
    /// How many dead letters the consumer has.
    async fn dead_letters(&self, consumer: &str) -> usize;
}

#[derive(Debug, thiserror::Error)]
pub enum Violation {
    #[error("{0}")]
    Rule(String),
    #[error("the transport failed where it should not")]
    Transport(#[from] TransportError),
}

macro_rules! rule {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(Violation::Rule(format!($($text)+)));
        }
    };
}

const LEASE: Duration = Duration::from_secs(2);
const MANY: usize = 100;

pub async fn run_all(world: &dyn World) -> Result<(), Violation> {
    publishing_twice_delivers_once(world).await?;
    each_consumer_gets_its_own_copy_of_what_it_takes(world).await?;
    messages_come_in_order_of_publication(world).await?;
    a_late_consumer_begins_with_what_the_stream_keeps(world).await?;
    a_lease_hides_and_its_end_delivers_again(world).await?;
    a_late_worker_is_refused(world).await?;
    a_retry_waits_for_its_delay(world).await?;
    a_dead_letter_leaves_the_queue_and_is_recorded(world).await?;
    concurrent_fetches_never_share_a_delivery(world).await
}

struct Case {
    transport: Arc<dyn Transport>,
    ambient: Ambient,
    /// Makes names and types of this case its own.
    mark: String,
}

impl Case {
    fn new(world: &dyn World) -> Self {
        let ambient = world.ambient();
        let mark = ambient.uuid().simple().to_string();
        Self { transport: world.transport(), ambient, mark }
    }

    fn event_type(&self, name: &str) -> String {
        format!("conformance.{}.{name}", self.mark)
    }

    async fn consumer(&self, name: &str, types: &[&str]) -> Result<ConsumerSpec, TransportError> {
        let spec = ConsumerSpec {
            name: format!("conformance-{name}-{}", self.mark),
            stream: Stream::Storage.name().to_owned(),
            event_types: types.iter().map(|t| self.event_type(t)).collect(),
        };
        self.transport.consumer_ensure(&spec).await?;
        Ok(spec)
    }

    fn message(&self, name: &str) -> Message {
        let now: DateTime<Utc> = self.ambient.now();
        Message {
            stream: Stream::Storage.name().to_owned(),
            envelope: Envelope {
                event_id: self.ambient.uuid(),
                event_type: self.event_type(name),
                version: 1,
                occurred_at: now,
                correlation_id: self.ambient.uuid(),
                traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
                org_id: Some(self.ambient.uuid()),
                project_id: None,
                payload: serde_json::json!({ "text": "ü\u{1f980}", "nested": [1, null, { "a": true }] }),
            },
        }
    }

    async fn publish(&self, name: &str, count: usize) -> Result<Vec<Message>, TransportError> {
        let messages: Vec<Message> = (0..count).map(|_| self.message(name)).collect();
        self.transport.publish(&messages).await?;
        Ok(messages)
    }

    async fn fetch(&self, consumer: &ConsumerSpec) -> Result<Vec<Delivery>, TransportError> {
        self.transport.fetch(consumer, MANY, LEASE).await
    }

    async fn fetch_one(&self, consumer: &ConsumerSpec) -> Result<Delivery, Violation> {
        let mut fetched = self.fetch(consumer).await?;
        rule!(fetched.len() == 1, "expected one delivery, got {}", fetched.len());
        fetched.pop().ok_or_else(|| Violation::Rule("nothing fetched".to_owned()))
    }
}

fn ids(deliveries: &[Delivery]) -> Vec<Uuid> {
    deliveries.iter().map(|d| d.message.envelope.event_id).collect()
}

pub async fn publishing_twice_delivers_once(world: &dyn World) -> Result<(), Violation> {
    let case = Case::new(world);
    let consumer = case.consumer("once", &["a"]).await?;
    let messages = case.publish("a", 2).await?;
    case.transport.publish(&messages).await?;
    let fetched = case.fetch(&consumer).await?;
    rule!(fetched.len() == 2, "two messages published twice were delivered {} times", fetched.len());
    for (sent, got) in messages.iter().zip(&fetched) {
        let (sent, got) = (serde_json::to_value(&sent.envelope), serde_json::to_value(&got.message.envelope));
        rule!(sent.ok() == got.ok(), "an envelope changed on its way");
    }
    for delivery in &fetched {
        rule!(delivery.attempts == 1, "a first delivery is attempt 1, not {}", delivery.attempts);
        case.transport.ack(delivery).await?;
    }
    case.transport.publish(&messages).await?;
    world.pass(LEASE * 2).await;
    rule!(case.fetch(&consumer).await?.is_empty(), "acked messages came again");
    Ok(())
}

pub async fn each_consumer_gets_its_own_copy_of_what_it_takes(world: &dyn World) -> Result<(), Violation> {
    let case = Case::new(world);
    let first = case.consumer("first", &["a"]).await?;
    let second = case.consumer("second", &["a", "b"]).await?;
    let a = case.publish("a", 1).await?;
    let b = case.publish("b", 1).await?;
    case.publish("c", 1).await?;
    let (a, b) = (a[0].envelope.event_id, b[0].envelope.event_id);
    let fetched = case.fetch(&first).await?;
    rule!(ids(&fetched) == [a], "a consumer got other types than it takes");
    case.transport.ack(&fetched[0]).await?;
    let fetched = ids(&case.fetch(&second).await?);
    rule!(fetched == [a, b], "one consumer's ack or filter changed what another gets");
    Ok(())
}

pub async fn messages_come_in_order_of_publication(world: &dyn World) -> Result<(), Violation> {
    let case = Case::new(world);
    let consumer = case.consumer("order", &["a"]).await?;
    let mut sent: Vec<Uuid> = case.publish("a", 10).await?.iter().map(|m| m.envelope.event_id).collect();
    sent.extend(case.publish("a", 10).await?.iter().map(|m| m.envelope.event_id));
    rule!(ids(&case.fetch(&consumer).await?) == sent, "one fetch gave messages out of order");
    Ok(())
}

pub async fn a_late_consumer_begins_with_what_the_stream_keeps(world: &dyn World) -> Result<(), Violation> {
    let case = Case::new(world);
    let sent: Vec<Uuid> = case.publish("a", 3).await?.iter().map(|m| m.envelope.event_id).collect();
    let consumer = case.consumer("late", &["a"]).await?;
    let fetched = case.fetch(&consumer).await?;
    rule!(ids(&fetched) == sent, "a new consumer did not get what was published before");
    for delivery in &fetched {
        case.transport.ack(delivery).await?;
    }
    case.consumer("late", &["a"]).await?;
    rule!(case.fetch(&consumer).await?.is_empty(), "registering again delivered again");
    let added: Vec<Uuid> = case.publish("b", 1).await?.iter().map(|m| m.envelope.event_id).collect();
    let consumer = case.consumer("late", &["a", "b"]).await?;
    rule!(
        ids(&case.fetch(&consumer).await?) == added,
        "a newly taken type must begin with what is kept, alone"
    );
    Ok(())
}

pub async fn a_lease_hides_and_its_end_delivers_again(world: &dyn World) -> Result<(), Violation> {
    let case = Case::new(world);
    let consumer = case.consumer("lease", &["a"]).await?;
    case.publish("a", 1).await?;
    let first = case.fetch_one(&consumer).await?;
    rule!(case.fetch(&consumer).await?.is_empty(), "a leased message was delivered to somebody else");
    world.pass(LEASE * 2).await;
    let second = case.fetch_one(&consumer).await?;
    rule!(second.attempts == first.attempts + 1, "an abandoned attempt was not counted");
    Ok(())
}

pub async fn a_late_worker_is_refused(world: &dyn World) -> Result<(), Violation> {
    let case = Case::new(world);
    let consumer = case.consumer("fence", &["a"]).await?;
    case.publish("a", 1).await?;
    let late = case.fetch_one(&consumer).await?;
    world.pass(LEASE * 2).await;
    let current = case.fetch_one(&consumer).await?;
    let burial = Burial { error: "late".to_owned(), class: Class::Permanent, retry_at: None };
    let refused = [
        case.transport.ack(&late).await,
        case.transport.retry(&late, Duration::ZERO, "late").await,
        case.transport.dead_letter(&late, &burial).await,
    ];
    for outcome in refused {
        rule!(
            matches!(outcome, Err(TransportError::LeaseLost)),
            "a late worker was not refused: {outcome:?}"
        );
    }
    rule!(world.dead_letters(&consumer.name).await == 0, "a refused burial left a dead letter");
    case.transport.ack(&current).await?;
    world.pass(LEASE * 2).await;
    rule!(case.fetch(&consumer).await?.is_empty(), "the current worker's ack did not count");
    Ok(())
}

pub async fn a_retry_waits_for_its_delay(world: &dyn World) -> Result<(), Violation> {
    let case = Case::new(world);
    let consumer = case.consumer("retry", &["a"]).await?;
    case.publish("a", 1).await?;
    let delivery = case.fetch_one(&consumer).await?;
    let delay = LEASE * 2;
    case.transport.retry(&delivery, delay, "not now").await?;
    rule!(case.fetch(&consumer).await?.is_empty(), "a retry came before its delay");
    let again = case.transport.ack(&delivery).await;
    rule!(matches!(again, Err(TransportError::LeaseLost)), "a delivery was settled twice");
    world.pass(delay * 2).await;
    let delivery = case.fetch_one(&consumer).await?;
    rule!(delivery.attempts == 2, "the second attempt is number {}", delivery.attempts);
    Ok(())
}

pub async fn a_dead_letter_leaves_the_queue_and_is_recorded(world: &dyn World) -> Result<(), Violation> {
    let case = Case::new(world);
    let consumer = case.consumer("dead", &["a"]).await?;
    case.publish("a", 1).await?;
    let delivery = case.fetch_one(&consumer).await?;
    let burial = Burial { error: "hopeless".to_owned(), class: Class::Permanent, retry_at: None };
    case.transport.dead_letter(&delivery, &burial).await?;
    world.pass(LEASE * 2).await;
    rule!(case.fetch(&consumer).await?.is_empty(), "a dead letter was delivered again");
    rule!(world.dead_letters(&consumer.name).await == 1, "the dead letter was not recorded once");
    Ok(())
}

pub async fn concurrent_fetches_never_share_a_delivery(world: &dyn World) -> Result<(), Violation> {
    let case = Case::new(world);
    let consumer = case.consumer("crowd", &["a"]).await?;
    case.publish("a", 40).await?;
    let fetches = (0..8).map(|_| case.transport.fetch(&consumer, 5, LEASE));
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for fetched in futures_util::future::join_all(fetches).await {
        let fetched = fetched?;
        total += fetched.len();
        seen.extend(ids(&fetched));
    }
    rule!(seen.len() == total, "{} deliveries were of {} messages", total, seen.len());
    let rest = ids(&case.fetch(&consumer).await?);
    rule!(total + rest.len() == 40, "{} of 40 messages were delivered", total + rest.len());
    Ok(())
}
