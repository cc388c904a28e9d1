//! Runs one consumer: leases, opens the transaction, handles, settles.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt as _;
use kernel::{CorrelationId, event::Envelope, ids::EventId};
use pg::{Db, Origin, Permit, Wake, WriteTx};
use telemetry::names;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::{
    BUS_CHANNEL, Burial, ConsumeError, Delivery, Registration, Transport, TransportError, consumer,
    dead_letter::{self, Class, LeasedLetter},
    error_text,
    postgres::after,
    relay::random,
};

const POLL_EVERY: Duration = Duration::from_secs(1);
const ENSURE_EVERY: Duration = Duration::from_secs(600);
/// For opening and committing the transaction, around the handler's own time.
const AROUND_HANDLER: Duration = Duration::from_secs(15);
/// Shorter than what a process has for its stop, so that what does not end in time can still be given back.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// A requeued letter whose attempts never finish takes its process with it; it is not tried for ever.
const MAX_UNFINISHED_TRIES: u32 = 3;

pub struct Runner(Arc<Inner>);

struct Inner {
    db: Db,
    transport: Arc<dyn Transport>,
    wake: Wake,
    consumer: Registration,
    /// What is being handled, by event.
    leased: Mutex<HashMap<Uuid, Work>>,
}

#[derive(Clone)]
enum Work {
    Delivery(Delivery),
    Letter(LeasedLetter),
}

enum Effect {
    Done,
    /// The event had its effect before.
    Duplicate,
    /// The dead letter was taken over or discarded meanwhile; nothing was done.
    Lost,
}

impl Runner {
    pub(crate) fn new(db: Db, transport: Arc<dyn Transport>, wake: Wake, consumer: Registration) -> Self {
        Self(Arc::new(Inner { db, transport, wake, consumer, leased: Mutex::default() }))
    }

    /// Works until `stop`; then takes nothing new, and lets the handlers that run finish. Those that do not
    /// within a deadline are rolled back and their messages delivered again.
    pub async fn run(self, stop: CancellationToken) {
        let inner = self.0;
        let mut wakes = inner.wake.subscribe();
        let mut running = JoinSet::new();
        let mut ensure_at = Instant::now();
        let mut healthy = true;
        while !stop.is_cancelled() {
            while running.try_join_next().is_some() {}
            // What arrives from here on is not in this fetch.
            while wakes.try_recv().is_ok() {}
            let free = inner.consumer.policy.concurrency.max(1).saturating_sub(running.len());
            let mut outcome = Ok(Vec::new());
            if ensure_at <= Instant::now() {
                outcome = inner.transport.consumer_ensure(&inner.consumer.spec).await.map(|()| Vec::new());
                if outcome.is_ok() {
                    ensure_at = Instant::now() + ENSURE_EVERY;
                }
            }
            if outcome.is_ok() && free > 0 {
                outcome = inner.take(free).await;
            }
            healthy = inner.report(healthy, outcome.as_ref().err());
            for work in outcome.unwrap_or_default() {
                let inner = inner.clone();
                running.spawn(async move { inner.settle(work).await });
            }
            let full = running.len() >= inner.consumer.policy.concurrency.max(1);
            tokio::select! {
                () = stop.cancelled() => {}
                _ = running.join_next(), if !running.is_empty() => {}
                () = Wake::wait(&mut wakes, BUS_CHANNEL, POLL_EVERY), if !full => {}
            }
        }
        let drained = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_WITHIN, drained).await.is_err() {
            tracing::warn!(
                consumer = inner.consumer.name,
                "handlers did not finish in time; their messages come again"
            );
            running.shutdown().await;
            inner.leases_release().await;
        }
    }

    /// Handles what is due now, one after the other, and answers how much that was.
    pub async fn run_once(&self) -> Result<usize, TransportError> {
        self.0.transport.consumer_ensure(&self.0.consumer.spec).await?;
        let due = self.0.take(self.0.consumer.policy.concurrency.max(1)).await?;
        let count = due.len();
        for work in due {
            self.0.settle(work).await;
        }
        Ok(count)
    }
}

impl Inner {
    /// Requeued dead letters first: they have waited longest.
    async fn take(&self, max: usize) -> Result<Vec<Work>, TransportError> {
        let lease = self.consumer.policy.lease();
        let letters = dead_letter::letters_lease(&self.db, self.consumer.name, max, lease)
            .await
            .map_err(|error| TransportError::Unavailable(error.into()))?;
        let mut work: Vec<Work> = letters.into_iter().map(Work::Letter).collect();
        let left = max.saturating_sub(work.len());
        if left > 0 {
            match self.transport.fetch(&self.consumer.spec, left, lease).await {
                Ok(deliveries) => work.extend(deliveries.into_iter().map(Work::Delivery)),
                // What is already leased must be worked on.
                Err(error) if work.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(work)
    }

    async fn settle(&self, work: Work) {
        let (stream, envelope) = match &work {
            Work::Delivery(delivery) => (&delivery.message.stream, &delivery.message.envelope),
            Work::Letter(letter) => (&letter.stream, &letter.envelope),
        };
        let span = tracing::info_span!(
            "consume",
            consumer = self.consumer.name,
            event_id = %EventId::from(envelope.event_id),
            event_type = envelope.event_type,
            correlation_id = %envelope.correlation_id,
        );
        if let Some(parent) = &envelope.traceparent {
            telemetry::set_parent(&span, parent);
        }
        let stream = stream.clone();
        let id = envelope.event_id;
        self.leased.lock().unwrap_or_else(|e| e.into_inner()).insert(id, work.clone());
        let work = async {
            match work {
                Work::Delivery(delivery) => self.settle_delivery(delivery).await,
                Work::Letter(letter) => self.settle_letter(letter).await,
            }
        };
        let outcome = Box::pin(work.instrument(span)).await;
        self.leased.lock().unwrap_or_else(|e| e.into_inner()).remove(&id);
        metrics::counter!(
            names::BUS_MESSAGES_TOTAL,
            "topic" => stream, "consumer" => self.consumer.name, "outcome" => outcome
        )
        .increment(1);
    }

    /// Releases the leases of interrupted work, so that another process handles it immediately.
    async fn leases_release(&self) {
        let leased = std::mem::take(&mut *self.leased.lock().unwrap_or_else(|e| e.into_inner()));
        for work in leased.into_values() {
            let released = match work {
                Work::Delivery(delivery) => {
                    let text = "the process stopped before the handler ended";
                    let retried = self.transport.retry(&delivery, Duration::ZERO, text).await;
                    retried.map_err(|error| error_text(&error))
                }
                Work::Letter(letter) => {
                    dead_letter::lease_release(&self.db, &letter).await.map_err(|error| error_text(&error))
                }
            };
            if let Err(error) = released {
                tracing::warn!(error, "the lease of a message could not be released; it expires");
            }
        }
    }

    async fn settle_delivery(&self, delivery: Delivery) -> &'static str {
        let policy = &self.consumer.policy;
        let effect = if delivery.attempts > policy.max_attempts {
            Err(ConsumeError::permanent("no attempt to handle the event came to an end"))
        } else {
            self.effect_in_time(&delivery.message.envelope, None).await
        };
        let (outcome, settled) = match effect {
            Ok(Effect::Done) => ("handled", self.transport.ack(&delivery).await),
            Ok(Effect::Duplicate | Effect::Lost) => ("duplicate", self.transport.ack(&delivery).await),
            Err(error) if error.class() == Class::Transient && delivery.attempts < policy.max_attempts => {
                let text = error_text(&error);
                tracing::info!(error = text, attempts = delivery.attempts, "an event will be tried again");
                let delay = policy.delay(delivery.attempts, random(&self.db));
                ("retried", self.transport.retry(&delivery, delay, &text).await)
            }
            Err(error) => {
                let text = error_text(&error);
                tracing::error!(error = text, attempts = delivery.attempts, "an event became a dead letter");
                let burial = Burial { error: text, class: error.class(), retry_at: self.retry_at(&error, 0) };
                ("dead", self.transport.dead_letter(&delivery, &burial).await)
            }
        };
        if let Err(error) = settled {
            // Whatever was committed is in the inbox; the lease ends and the next delivery finds it there.
            tracing::info!(
                error = error_text(&error),
                outcome,
                "a delivery could not be settled; it comes again"
            );
        }
        outcome
    }

    async fn settle_letter(&self, letter: LeasedLetter) -> &'static str {
        let effect = if letter.tries > MAX_UNFINISHED_TRIES {
            Err(ConsumeError::permanent("no attempt to handle the event came to an end"))
        } else {
            self.effect_in_time(&letter.envelope, Some(&letter)).await
        };
        match effect {
            Ok(Effect::Done) => "handled",
            Ok(Effect::Duplicate | Effect::Lost) => "duplicate",
            Err(error) => {
                let text = error_text(&error);
                tracing::warn!(error = text, dead_letter_id = %letter.id, "a dead letter failed again");
                let retry_at = self.retry_at(&error, letter.slow_retries);
                let failed = dead_letter::fail(&self.db, &letter, &text, error.class(), retry_at).await;
                if let Err(error) = failed {
                    tracing::info!(
                        error = error_text(&error),
                        "a dead letter could not be put back; it is tried again"
                    );
                }
                "dead"
            }
        }
    }

    fn retry_at(&self, error: &ConsumeError, slow_retries: u32) -> Option<chrono::DateTime<chrono::Utc>> {
        match error.class() {
            Class::Permanent => None,
            Class::Transient => {
                let delay = self.consumer.policy.slow_delay(slow_retries, random(&self.db))?;
                Some(after(self.db.ambient().now(), delay))
            }
        }
    }

    async fn effect_in_time(
        &self,
        envelope: &Envelope,
        letter: Option<&LeasedLetter>,
    ) -> Result<Effect, ConsumeError> {
        let limit = self.consumer.policy.handler_timeout + AROUND_HANDLER;
        match tokio::time::timeout(limit, Box::pin(self.effect(envelope, letter))).await {
            Ok(effect) => effect,
            Err(_) => Err(ConsumeError::transient("the database took too long")),
        }
    }

    /// The one transaction: inbox record, effect, audit, events, and the dead letter's end.
    async fn effect(
        &self,
        envelope: &Envelope,
        letter: Option<&LeasedLetter>,
    ) -> Result<Effect, ConsumeError> {
        let work = self.consumer.handler.read(envelope)?;
        if letter.is_none() && work.as_ref().is_none_or(|work| !work.concerns()) {
            return Ok(Effect::Done);
        }
        let origin = Origin {
            correlation_id: CorrelationId(envelope.correlation_id),
            source_ip: None,
            traceparent: telemetry::current_traceparent().or_else(|| envelope.traceparent.clone()),
        };
        if let Some(work) = &work {
            self.in_time(work.reconcile()).await?;
        }
        let permit = Permit::system(self.consumer.reason, origin);
        let mut tx = self.db.write(permit, self.consumer.audit_action).await?;
        let effect = self.effect_within(&mut tx, work.as_deref(), envelope, letter).await;
        // Rolled back here rather than by drop, so that the next attempt does not wait for the locks.
        match effect {
            Ok(Effect::Done) => {
                tx.commit(None).await?;
            }
            Ok(Effect::Duplicate) if letter.is_some() => {
                tx.commit(None).await?;
            }
            Ok(Effect::Duplicate | Effect::Lost) | Err(_) => tx.roll_back().await,
        }
        effect
    }

    async fn effect_within(
        &self,
        tx: &mut WriteTx,
        work: Option<&dyn consumer::Work>,
        envelope: &Envelope,
        letter: Option<&LeasedLetter>,
    ) -> Result<Effect, ConsumeError> {
        tx.record("event", EventId::from(envelope.event_id), None::<&()>, None::<&()>)?;
        if let Some(org) = envelope.org_id {
            tx.audit_in_org(org.into());
        }
        // First, so that a letter is locked before the inbox by everybody; nobody can lease or discard it now.
        if let Some(letter) = letter
            && !dead_letter::resolve(tx, letter).await?
        {
            return Ok(Effect::Lost);
        }
        let now = self.db.ambient().now();
        // While another transaction handles the same event, this waits for its end.
        let fresh = sqlx::query!(
            "INSERT INTO inbox_records (consumer, event_id, handled_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            self.consumer.name,
            envelope.event_id,
            now,
        )
        .execute(tx.conn())
        .await?
        .rows_affected()
            > 0;
        if let Some(work) = work.filter(|_| fresh) {
            self.in_time(work.handle(tx)).await?;
        }
        Ok(if fresh { Effect::Done } else { Effect::Duplicate })
    }

    /// A handler that panics or never ends fails like any other.
    async fn in_time(
        &self,
        handler: impl Future<Output = Result<(), ConsumeError>>,
    ) -> Result<(), ConsumeError> {
        let handler = AssertUnwindSafe(handler).catch_unwind();
        match tokio::time::timeout(self.consumer.policy.handler_timeout, handler).await {
            Ok(Ok(handled)) => handled,
            Ok(Err(panic)) => {
                let text = panic.downcast_ref::<&str>().map(|t| (*t).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                Err(ConsumeError::permanent(format!("the handler panicked: {text}")))
            }
            Err(_) => Err(ConsumeError::transient("the handler took too long")),
        }
    }

    /// One line when fetching begins to fail and one when it works again.
    fn report(&self, was_healthy: bool, error: Option<&TransportError>) -> bool {
        let consumer = self.consumer.name;
        match error {
            Some(error) if was_healthy => {
                tracing::warn!(
                    consumer,
                    error = error_text(error),
                    "messages cannot be fetched; trying again"
                );
            }
            None if !was_healthy => tracing::info!(consumer, "messages are fetched again"),
            _ => {}
        }
        error.is_none()
    }
}
