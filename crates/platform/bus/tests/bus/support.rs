//! A database, a clock, a consumer that records its effects, and transports that misbehave.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bus::{
    Burial, Bus, ConsumeError, Consumer, ConsumerPolicy, ConsumerSpec, Delivery, Message, PgTransport,
    Registration, Transport, TransportError,
};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::{CorrelationId, Event, ManualClock, Stream, event::Envelope};
use pg::{Db, Origin, Permit, Roles, Wake, WriteTx};
use sqlx::{Executor as _, PgConnection};
use testkit::TestDb;
use uuid::Uuid;

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Pinged {
    pub n: u32,
}

impl Event for Pinged {
    const TYPE: &'static str = "storage.test.pinged";
    const STREAM: Stream = Stream::Storage;
    const SUMMARY: &'static str = "A test pinged.";
}

pub const START: &str = "2030-01-01T00:00:00Z";

pub struct Fixture {
    pub clock: Arc<ManualClock>,
    pub db: Db,
    pub wake: Wake,
    pub test: TestDb,
    listening: tokio::task::JoinHandle<()>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Fixture {
    pub async fn create() -> Self {
        let clock = ManualClock::starting_at(START.parse::<DateTime<Utc>>().unwrap());
        let ambient = clock.ambient();
        let test = TestDb::create_with(ambient).await;
        let mut owner = test.conn(Roles::Owner).await;
        owner
            .execute(
                "CREATE TABLE effects (event_id uuid NOT NULL, n integer NOT NULL);
                 GRANT SELECT, INSERT ON effects TO gpuaas_system",
            )
            .await
            .unwrap();
        let (wake, listening) = test.db.listen();
        Self { clock, db: test.db.clone(), wake, test, listening }
    }

    pub fn pass(&self, time: Duration) {
        self.clock.advance(TimeDelta::from_std(time).unwrap());
    }

    pub fn transport(&self) -> Arc<PgTransport> {
        Arc::new(PgTransport::new(self.db.clone()))
    }

    pub fn bus(&self) -> Bus {
        Bus::on_postgres(self.db.clone(), self.wake.clone())
    }

    pub fn bus_over(&self, transport: Arc<dyn Transport>) -> Bus {
        Bus::new(self.db.clone(), transport, self.wake.clone())
    }

    pub fn permit(&self) -> Permit {
        Permit::system("test", Origin::internal(CorrelationId(self.db.ambient().uuid())))
    }

    pub async fn emit(&self, numbers: impl IntoIterator<Item = u32>) {
        let mut tx = self.db.write(self.permit(), "test.emit").await.unwrap();
        for n in numbers {
            tx.emit(&Pinged { n }).unwrap();
        }
        tx.commit(None).await.unwrap();
    }

    /// Emits and publishes.
    pub async fn publish(&self, numbers: impl IntoIterator<Item = u32>) {
        self.emit(numbers).await;
        self.bus().relay().relay_batch().await.unwrap();
    }

    pub async fn admin(&self) -> PgConnection {
        self.test.conn(Roles::Admin).await
    }

    pub async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&mut self.admin().await).await.unwrap()
    }

    /// How often each number had its effect.
    pub async fn effects(&self) -> BTreeMap<i32, i64> {
        let rows: Vec<(i32, i64)> = sqlx::query_as("SELECT n, count(*) FROM effects GROUP BY n")
            .fetch_all(&mut self.admin().await)
            .await
            .unwrap();
        rows.into_iter().collect()
    }
}

pub fn once_each(numbers: impl IntoIterator<Item = i32>) -> BTreeMap<i32, i64> {
    numbers.into_iter().map(|n| (n, 1)).collect()
}

type Behaviour = dyn Fn(u32, &Envelope) -> Result<(), ConsumeError> + Send + Sync;

/// Writes each ping into `effects`, and then does what the test says (given how often it was called).
#[derive(Clone)]
pub struct Recorder {
    pub calls: Arc<AtomicU32>,
    pub policy: ConsumerPolicy,
    behaviour: Arc<Behaviour>,
    /// Entered handlers announce themselves here and wait for a permit, when there is one.
    pub gate: Option<Arc<Gate>>,
}

pub struct Gate {
    pub entered: tokio::sync::Semaphore,
    pub open: tokio::sync::Semaphore,
}

impl Gate {
    pub fn shut() -> Arc<Self> {
        Arc::new(Self { entered: tokio::sync::Semaphore::new(0), open: tokio::sync::Semaphore::new(0) })
    }

    pub async fn wait_entered(&self) {
        let entered = tokio::time::timeout(Duration::from_secs(20), self.entered.acquire()).await;
        entered.expect("a handler runs").unwrap().forget();
    }
}

impl Recorder {
    pub fn new(
        behaviour: impl Fn(u32, &Envelope) -> Result<(), ConsumeError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            calls: Arc::default(),
            policy: ConsumerPolicy::default(),
            behaviour: Arc::new(behaviour),
            gate: None,
        }
    }

    pub fn good() -> Self {
        Self::new(|_, _| Ok(()))
    }

    pub fn gated(gate: &Arc<Gate>) -> Self {
        Self { gate: Some(gate.clone()), ..Self::good() }
    }

    pub fn policy(mut self, change: impl FnOnce(&mut ConsumerPolicy)) -> Self {
        change(&mut self.policy);
        self
    }

    pub fn registered(&self) -> Registration {
        Registration::for_consumer(self.clone())
    }

    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Consumer for Recorder {
    const NAME: &'static str = "test-recorder";
    type Events = Pinged;
    const AUDIT_ACTION: &'static str = "test.record";

    fn policy(&self) -> ConsumerPolicy {
        self.policy
    }

    async fn handle(&self, tx: &mut WriteTx, ping: &Pinged, envelope: &Envelope) -> Result<(), ConsumeError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        sqlx::query("INSERT INTO effects VALUES ($1, $2)")
            .bind(envelope.event_id)
            .bind(i32::try_from(ping.n).unwrap())
            .execute(tx.conn())
            .await?;
        if let Some(gate) = &self.gate {
            gate.entered.add_permits(1);
            gate.open.acquire().await.unwrap().forget();
        }
        (self.behaviour)(call, envelope)
    }
}

/// What a wrapped transport does wrong, decided call by call.
#[derive(Default)]
pub struct Faults {
    /// This many acks are lost on their way.
    pub lose_acks: AtomicU32,
    /// This many publications arrive, but the answer says otherwise.
    pub lose_publish_answers: AtomicU32,
    /// This many publications never come to an end.
    pub hang_publish: AtomicU32,
    /// This many publications fail.
    pub refuse_publish: AtomicU32,
    /// Messages with this number are never taken.
    pub rejected: Mutex<Option<u32>>,
    /// Every delivery is handed out twice, in reverse order.
    pub echo: bool,
    pub published: Mutex<BTreeMap<Uuid, u32>>,
}

pub struct Faulty {
    pub inner: Arc<PgTransport>,
    pub faults: Faults,
}

fn spend(counter: &AtomicU32) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}

fn unavailable() -> TransportError {
    TransportError::Unavailable("the line is cut".into())
}

#[async_trait]
impl Transport for Faulty {
    async fn consumer_ensure(&self, consumer: &ConsumerSpec) -> Result<(), TransportError> {
        self.inner.consumer_ensure(consumer).await
    }

    async fn publish(&self, messages: &[Message]) -> Result<(), TransportError> {
        if spend(&self.faults.hang_publish) {
            std::future::pending::<()>().await;
        }
        if spend(&self.faults.refuse_publish) {
            return Err(unavailable());
        }
        let rejected = *self.faults.rejected.lock().unwrap();
        if messages.iter().any(|m| rejected.is_some_and(|n| m.envelope.payload["n"] == n)) {
            return Err(TransportError::Rejected("too odd".into()));
        }
        self.inner.publish(messages).await?;
        for message in messages {
            *self.faults.published.lock().unwrap().entry(message.envelope.event_id).or_default() += 1;
        }
        if spend(&self.faults.lose_publish_answers) { Err(unavailable()) } else { Ok(()) }
    }

    async fn fetch(
        &self,
        consumer: &ConsumerSpec,
        max: usize,
        lease: Duration,
    ) -> Result<Vec<Delivery>, TransportError> {
        let mut fetched = self.inner.fetch(consumer, max, lease).await?;
        if self.faults.echo {
            fetched.extend(fetched.clone());
            fetched.reverse();
        }
        Ok(fetched)
    }

    async fn ack(&self, delivery: &Delivery) -> Result<(), TransportError> {
        if spend(&self.faults.lose_acks) {
            return Err(unavailable());
        }
        self.inner.ack(delivery).await
    }

    async fn retry(&self, delivery: &Delivery, after: Duration, error: &str) -> Result<(), TransportError> {
        self.inner.retry(delivery, after, error).await
    }

    async fn dead_letter(&self, delivery: &Delivery, burial: &Burial) -> Result<(), TransportError> {
        self.inner.dead_letter(delivery, burial).await
    }

    async fn retain(&self) -> Result<u64, TransportError> {
        self.inner.retain().await
    }
}
