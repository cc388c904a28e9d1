//! Whether this process lives and whether it can work.
//!
//! Whoever owns a dependency registers it and keeps the [`Probe`], and sets the state when it learns of a
//! change. Nothing is checked when `/readyz` is asked: the answer is as cheap as reading a few fields, so a
//! flood of questions cannot hurt a dependency that is already in trouble.
//!
//! Ready means that every dependency is ready. The worst state names the whole: `stopping`, then `failing`,
//! then `warming`. `/healthz` is about the process alone, so that a broken database does not get every
//! replica restarted.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Json, Router,
    extract::State as Shared,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::metrics;

/// Tells the time; the process has one source of it.
pub type Now = Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>;

/// Longer reasons are cut.
const REASON_LIMIT_CHARS: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ready,
    /// Not there yet, and expected to be.
    Warming,
    Failing,
    /// The process is on its way out. Never the state of a single dependency.
    Stopping,
}

#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the state (not the reason) last changed.
    pub since: DateTime<Utc>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub status: State,
    pub checks: Vec<Check>,
}

struct Inner {
    now: Now,
    stopping: AtomicBool,
    checks: Mutex<Vec<Arc<Mutex<Check>>>>,
}

/// The registry; clones share it.
#[derive(Clone)]
pub struct Health {
    inner: Arc<Inner>,
}

/// One dependency's state, held by its owner; clones share it. A dropped probe leaves its last state behind.
#[derive(Clone)]
pub struct Probe {
    now: Now,
    check: Arc<Mutex<Check>>,
}

/// A panic while holding the lock cannot leave these values half-written, so poison means nothing here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Health {
    pub fn new(now: Now) -> Self {
        let inner = Inner { now, stopping: AtomicBool::new(false), checks: Mutex::new(Vec::new()) };
        Self { inner: Arc::new(inner) }
    }

    /// Adds a dependency, warming until its owner says otherwise. The same name again gives the same check.
    pub fn register(&self, name: &'static str) -> Probe {
        let now = Arc::clone(&self.inner.now);
        let mut checks = lock(&self.inner.checks);
        if let Some(check) = checks.iter().find(|check| lock(check).name == name) {
            return Probe { now, check: Arc::clone(check) };
        }
        let reason = Some("not checked yet".to_owned());
        let check = Arc::new(Mutex::new(Check { name, state: State::Warming, reason, since: now() }));
        checks.push(Arc::clone(&check));
        Probe { now, check }
    }

    /// From now on not ready, for good: load balancers stop sending work while the rest is drained.
    pub fn stopping(&self) {
        self.inner.stopping.store(true, Ordering::Release);
    }

    pub fn report(&self) -> Report {
        let checks: Vec<Check> = lock(&self.inner.checks).iter().map(|check| lock(check).clone()).collect();
        let status = if self.inner.stopping.load(Ordering::Acquire) {
            State::Stopping
        } else {
            checks.iter().map(|check| check.state).max().unwrap_or(State::Ready)
        };
        Report { status, checks }
    }

    /// `GET /healthz` and `GET /readyz`: what a load balancer may ask on a public listener.
    pub fn probes(&self) -> Router {
        Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(self.clone())
    }

    /// The same and `GET /metrics`, for the operations listener.
    pub fn router(&self) -> Router {
        self.probes().route("/metrics", get(metrics_text))
    }
}

impl Probe {
    pub fn warming(&self, reason: impl Into<String>) {
        self.set(State::Warming, Some(reason.into()));
    }

    pub fn ready(&self) {
        self.set(State::Ready, None);
    }

    pub fn failing(&self, reason: impl Into<String>) {
        self.set(State::Failing, Some(reason.into()));
    }

    fn set(&self, state: State, reason: Option<String>) {
        let reason = reason.map(|mut reason| {
            if let Some((end, _)) = reason.char_indices().nth(REASON_LIMIT_CHARS) {
                reason.truncate(end);
            }
            reason
        });
        let (name, changed) = {
            let mut check = lock(&self.check);
            let changed = check.state != state;
            if changed {
                check.state = state;
                check.since = (self.now)();
            }
            check.reason.clone_from(&reason);
            (check.name, changed)
        };
        // One event per change, not one per check.
        if changed {
            let reason = reason.unwrap_or_default();
            match state {
                State::Failing => tracing::warn!(dependency = name, reason, "dependency is failing"),
                State::Ready => tracing::info!(dependency = name, "dependency is ready"),
                _ => tracing::info!(dependency = name, reason, "dependency is warming"),
            }
        }
    }
}

#[derive(Serialize)]
struct Alive {
    status: &'static str,
}

const NO_STORE: [(header::HeaderName, &str); 1] = [(header::CACHE_CONTROL, "no-store")];

async fn healthz() -> impl IntoResponse {
    (NO_STORE, Json(Alive { status: "ok" }))
}

async fn readyz(Shared(health): Shared<Health>) -> impl IntoResponse {
    let report = health.report();
    let code = if report.status == State::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, NO_STORE, Json(report))
}

async fn metrics_text() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::metrics().render())
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
