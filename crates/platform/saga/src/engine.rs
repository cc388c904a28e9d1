//! The engine on Postgres: leases what is due and drives it. As many replicas as wanted may run one.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use kernel::ids::SagaRunId;
use pg::{Db, Wake};
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::{
    CHANNEL,
    faults::Faults,
    measure::measure,
    step::Saga,
    store::{self, Run},
};

const CONCURRENCY: usize = 64;
/// How long a run can be late that nobody gave notice of.
const POLL_EVERY: Duration = Duration::from_secs(1);
const LOOK_FOR_UNKNOWN_EVERY: Duration = Duration::from_secs(60);
/// Shorter than what a process has for its stop, so that what does not end in time can still be given back.
const STOP_WITHIN: Duration = Duration::from_secs(5);

pub struct Engine(Inner);

pub(crate) struct Inner {
    pub db: Db,
    wake: Wake,
    sagas: Vec<Arc<dyn Saga>>,
    known: Vec<(String, i32)>,
    concurrency: usize,
    pub faults: Option<Arc<dyn Faults>>,
    /// A fault killed this engine.
    pub dead: CancellationToken,
    /// When runs that this engine put to sleep are due, as far as that is before the next look.
    soon: Mutex<BTreeSet<DateTime<Utc>>>,
    sooner: Notify,
    /// The leases that this engine works under, with their fences.
    leased: Mutex<HashMap<SagaRunId, i64>>,
}

impl Engine {
    /// `wake` comes from `Db::listen`, once per process. Runs of definitions that are not among `sagas` are left
    /// to workers that know them.
    pub fn new(db: Db, wake: Wake, sagas: Vec<Arc<dyn Saga>>) -> Self {
        let known = sagas.iter().map(|saga| (saga.spec().name.to_owned(), saga.spec().version)).collect();
        // A step holds a connection and may need another for a moment (policies, signers), and others need some too.
        let concurrency = (db.system_connections() / 2).clamp(1, CONCURRENCY);
        Self(Inner {
            db,
            wake,
            sagas,
            known,
            concurrency,
            faults: None,
            dead: CancellationToken::new(),
            soon: Mutex::default(),
            sooner: Notify::new(),
            leased: Mutex::default(),
        })
    }

    /// How many runs it drives at once.
    #[must_use]
    pub fn with_concurrency(mut self, runs: usize) -> Self {
        self.0.concurrency = runs.max(1);
        self
    }

    /// For tests.
    #[must_use]
    pub fn with_faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.0.faults = Some(faults);
        self
    }

    /// Works until `stop`; then takes nothing new, lets the calls that run commit, and hands their runs back.
    pub async fn run(self, stop: CancellationToken) {
        let inner = Arc::new(self.0);
        let mut wakes = inner.wake.subscribe();
        let mut running = JoinSet::new();
        let mut look_for_unknown_at = Instant::now();
        let mut healthy = true;
        while !stop.is_cancelled() {
            while running.try_join_next().is_some() {}
            // What is said from here on is not in this look.
            while wakes.try_recv().is_ok() {}
            if look_for_unknown_at <= Instant::now() {
                look_for_unknown_at = Instant::now() + LOOK_FOR_UNKNOWN_EVERY;
                inner.report_unknown().await;
                if let Err(error) = measure(&inner.db).await {
                    tracing::warn!(error = %error, "workflow runs could not be counted; trying again");
                }
            }
            let free = inner.concurrency.saturating_sub(running.len());
            let leased = if free > 0 { inner.lease(free).await } else { Ok(Vec::new()) };
            healthy = report(healthy, leased.as_ref().err());
            for run in leased.unwrap_or_default() {
                let (inner, stop) = (inner.clone(), stop.clone());
                running.spawn(Box::pin(async move { inner.follow(run, &stop).await }));
            }
            let full = running.len() >= inner.concurrency;
            tokio::select! {
                () = stop.cancelled() => {}
                // As if killed: the tasks go with `running`.
                () = inner.dead.cancelled() => return,
                _ = running.join_next(), if full => {}
                () = inner.sooner.notified(), if !full => {}
                () = Wake::wait(&mut wakes, CHANNEL, inner.patience()), if !full => {}
            }
        }
        let drained = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_WITHIN, drained).await.is_err() {
            tracing::warn!("steps did not end in time; they are rolled back and run again");
            running.shutdown().await;
            inner.leases_release().await;
        }
    }

    /// Does what is due now, one run after the other, and answers how many runs that were.
    pub async fn run_once(&self) -> Result<usize, pg::Error> {
        if self.is_dead() {
            return Ok(0);
        }
        let due = self.0.lease(self.0.concurrency).await?;
        let count = due.len();
        let never = CancellationToken::new();
        for run in due {
            Box::pin(self.0.follow(run, &never)).await;
            if self.is_dead() {
                break;
            }
        }
        Ok(count)
    }

    /// Sets the gauges of runs that need attention; [`Self::run`] does so every minute.
    pub async fn measure(&self) -> Result<(), pg::Error> {
        measure(&self.0.db).await
    }

    /// A fault killed it.
    pub fn is_dead(&self) -> bool {
        self.0.dead.is_cancelled()
    }
}

impl Inner {
    async fn lease(&self, max: usize) -> Result<Vec<Run>, pg::Error> {
        let now = self.db.ambient().now();
        // What is due by now is in this look.
        self.soon.lock().unwrap_or_else(|e| e.into_inner()).retain(|due| *due > now);
        store::lease(&self.db, &self.known, max).await
    }

    async fn follow(&self, run: Run, stop: &CancellationToken) {
        let Some(saga) = self.saga(&run) else { return };
        let span = tracing::info_span!(
            "saga",
            saga = run.name,
            run_id = %run.id,
            subject = run.subject,
            correlation_id = %run.correlation,
        );
        if let Some(parent) = &run.traceparent {
            telemetry::set_parent(&span, parent);
        }
        let id = run.id;
        self.leased.lock().unwrap_or_else(|e| e.into_inner()).insert(id, run.fence);
        self.drive(&*saga, run, stop).instrument(span).await;
        self.leased.lock().unwrap_or_else(|e| e.into_inner()).remove(&id);
    }

    /// Releases the leases of interrupted calls, so that another worker continues immediately. A call that committed
    /// meanwhile has updated the row itself.
    async fn leases_release(&self) {
        let leased = std::mem::take(&mut *self.leased.lock().unwrap_or_else(|e| e.into_inner()));
        for (id, fence) in leased {
            if let Err(error) = store::release(&self.db, id, fence).await {
                tracing::warn!(error = %error, run_id = %id, "the lease of a run could not be released; it expires");
            }
        }
    }

    fn saga(&self, run: &Run) -> Option<Arc<dyn Saga>> {
        let known =
            |saga: &&Arc<dyn Saga>| saga.spec().name == run.name && saga.spec().version == run.spec_version;
        self.sagas.iter().find(known).cloned()
    }

    /// A run was put to sleep until then; if that is soon, this engine looks in time.
    pub fn note_due(&self, due: DateTime<Utc>) {
        let ahead = due - self.db.ambient().now();
        if ahead.to_std().unwrap_or_default() < POLL_EVERY {
            self.soon.lock().unwrap_or_else(|e| e.into_inner()).insert(due);
            self.sooner.notify_one();
        }
    }

    fn patience(&self) -> Duration {
        let first = self.soon.lock().unwrap_or_else(|e| e.into_inner()).first().copied();
        let ahead = first.map(|due| (due - self.db.ambient().now()).to_std().unwrap_or_default());
        // A little late rather than a little early, which would be one more look.
        ahead.map_or(POLL_EVERY, |ahead| (ahead + Duration::from_millis(1)).min(POLL_EVERY))
    }

    async fn report_unknown(&self) {
        for (name, version, runs) in store::unknown(&self.db, &self.known).await.unwrap_or_default() {
            tracing::warn!(
                saga = name,
                version,
                runs,
                "this worker does not know a workflow that has open runs; they wait for one that does"
            );
        }
    }
}

/// One line when leasing begins to fail and one when it works again.
fn report(was_healthy: bool, error: Option<&pg::Error>) -> bool {
    match error {
        Some(error) if was_healthy => {
            tracing::warn!(error = %error, "workflow runs cannot be leased; trying again");
        }
        None if !was_healthy => tracing::info!("workflow runs are leased again"),
        _ => {}
    }
    error.is_none()
}
