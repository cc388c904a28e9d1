//! A database, a clock, and a saga whose effects can be counted.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    CorrelationId, Failure, ManualClock,
    ids::{OrgId, SagaRunId},
};
use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use pg::{Db, Origin, Permit, Roles, Wake};
use saga::{
    Action, Engine, FailureCode, OnFailure, Retry, RunEnd, Saga, SagaDefinition, Signal, StartError, Step,
    StepCx, StepDefinition, StepError, Undo, end_fn, resume_fn, step_fn,
};
use serde_json::{Value, json};
use sqlx::{Executor as _, PgConnection};
use testkit::TestDb;

pub type Record = SagaDefinition<Arc<Recorder>>;

const fn step(
    name: &'static str,
    action: Action<Arc<Recorder>>,
    undo: Undo<Arc<Recorder>>,
) -> StepDefinition<Arc<Recorder>> {
    let retry = Retry::times(3, Duration::from_secs(2));
    StepDefinition { name, action, undo, timeout: Duration::from_secs(30), retry }
}

const EFFECT: Action<Arc<Recorder>> = Action::AtOnce(step_fn!(have_effect));
const ASK: Action<Arc<Recorder>> = Action::Waits { run: step_fn!(ask), resume: resume_fn!(answered) };
const TAKE_BACK: Undo<Arc<Recorder>> = Undo::By(Action::AtOnce(step_fn!(take_back)));
const ASK_BACK: Undo<Arc<Recorder>> =
    Undo::By(Action::Waits { run: step_fn!(ask_back), resume: resume_fn!(answered_back) });

/// One step of each kind: at once, with a wait (also on the way back), with a second look, at once and without a
/// second attempt.
pub static SPEC: Record = SagaDefinition {
    name: "record",
    version: 1,
    steps: &[
        step("reserve", EFFECT, TAKE_BACK),
        step("ask", ASK, ASK_BACK),
        step("look", Action::AtOnce(step_fn!(second_call)), Undo::Nothing),
        StepDefinition { retry: Retry::NEVER, ..step("open", EFFECT, TAKE_BACK) },
    ],
    deadline: Duration::from_secs(600),
    on_failure: OnFailure::Undo,
    audit_action: "test.record",
    ended: end_fn!(ended),
};

/// The same, forward only.
pub static FORWARD: Record = SagaDefinition {
    name: "forward",
    version: 1,
    steps: &[
        step("reserve", EFFECT, Undo::Nothing),
        step("ask", ASK, Undo::Nothing),
        step("open", EFFECT, Undo::Nothing),
    ],
    deadline: Duration::from_secs(600),
    on_failure: OnFailure::Stuck,
    audit_action: "test.forward",
    ended: end_fn!(ended),
};

/// Its step suspends, and nothing would resume it.
pub static NEVER_RESUMED: Record = SagaDefinition {
    name: "never_resumed",
    version: 1,
    steps: &[step("ask", Action::AtOnce(step_fn!(ask)), Undo::Nothing)],
    deadline: Duration::from_secs(600),
    on_failure: OnFailure::Stuck,
    audit_action: "test.never_resumed",
    ended: end_fn!(ended),
};

type Behaviour = dyn Fn(&str, bool, u32) -> Result<(), StepError> + Send + Sync;

/// Leaves a row per step in `effects` and takes it away again; then does what the test says.
pub struct Recorder {
    pub spec: &'static Record,
    pub behaviour: Box<Behaviour>,
    pub calls: AtomicU32,
    /// Telling of the end fails this often.
    pub end_failures: AtomicU32,
}

impl Recorder {
    pub fn with_steps(
        spec: &'static Record,
        behaviour: impl Fn(&str, bool, u32) -> Result<(), StepError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let behaviour = Box::new(behaviour);
        Arc::new(Self { spec, behaviour, calls: AtomicU32::new(0), end_failures: AtomicU32::new(0) })
    }

    pub fn good() -> Arc<Self> {
        Self::with_steps(&SPEC, |_, _, _| Ok(()))
    }

    pub fn bound(self: &Arc<Self>) -> Arc<dyn Saga> {
        self.spec.bind(self.clone())
    }

    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }

    fn act(&self, step: &str, undo: bool, cx: &StepCx<'_>) -> Result<(), StepError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        (self.behaviour)(step, undo, cx.attempt)
    }
}

async fn effect(cx: &mut StepCx<'_>, step: &str) -> Result<(), StepError> {
    sqlx::query("INSERT INTO effects VALUES ($1, $2)")
        .bind(cx.run_id.uuid())
        .bind(step)
        .execute(cx.tx.conn())
        .await?;
    Ok(())
}

async fn effect_remove(cx: &mut StepCx<'_>, step: &str) -> Result<(), StepError> {
    sqlx::query("DELETE FROM effects WHERE run_id = $1 AND step = $2")
        .bind(cx.run_id.uuid())
        .bind(step)
        .execute(cx.tx.conn())
        .await?;
    Ok(())
}

async fn have_effect(recorder: &Arc<Recorder>, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let step = cx.step();
    effect(cx, step).await?;
    recorder.act(step, false, cx)?;
    Step::done_with(&json!({ "step": step }))
}

/// The question itself is not counted: its answer is.
async fn ask(recorder: &Arc<Recorder>, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    recorder.act(cx.step(), false, cx)?;
    Ok(Step::Suspended)
}

async fn answered(recorder: &Arc<Recorder>, cx: &mut StepCx<'_>, signal: &Signal) -> Result<Step, StepError> {
    let step = cx.step();
    recorder.act(step, false, cx)?;
    match signal {
        Signal::TimedOut => Err(StepError::retry(FailureCode::TimedOut, "no answer came")),
        Signal::Woken(answer) => {
            effect(cx, step).await?;
            Step::done_with(answer)
        }
    }
}

async fn second_call(recorder: &Arc<Recorder>, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let step = cx.step();
    let seen: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM looks WHERE run_id = $1)")
        .bind(cx.run_id.uuid())
        .fetch_one(cx.tx.conn())
        .await?;
    recorder.act(step, false, cx)?;
    if seen {
        effect(cx, step).await?;
        return Step::done();
    }
    sqlx::query("INSERT INTO looks VALUES ($1)").bind(cx.run_id.uuid()).execute(cx.tx.conn()).await?;
    Ok(Step::Again { after: Duration::from_secs(1) })
}

async fn take_back(recorder: &Arc<Recorder>, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    let step = cx.step();
    assert!(cx.failure.is_some(), "whoever takes back is told why");
    effect_remove(cx, step).await?;
    recorder.act(step, true, cx)?;
    Step::done()
}

async fn ask_back(recorder: &Arc<Recorder>, cx: &mut StepCx<'_>) -> Result<Step, StepError> {
    take_back(recorder, cx).await?;
    Ok(Step::Suspended)
}

async fn answered_back(
    recorder: &Arc<Recorder>,
    cx: &mut StepCx<'_>,
    signal: &Signal,
) -> Result<Step, StepError> {
    recorder.act(cx.step(), true, cx)?;
    match signal {
        Signal::TimedOut => Err(StepError::retry(FailureCode::TimedOut, "no answer came")),
        Signal::Woken(_) => Step::done(),
    }
}

async fn ended(recorder: &Arc<Recorder>, cx: &mut StepCx<'_>, end: RunEnd) -> Result<(), Failure> {
    sqlx::query("INSERT INTO ends VALUES ($1, $2)")
        .bind(cx.run_id.uuid())
        .bind(end.name())
        .execute(cx.tx.conn())
        .await?;
    let failures = &recorder.end_failures;
    let fails = failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    if fails.is_ok() {
        Err(kernel::Problem::from_code(kernel::Code::ServiceUnavailable).into())
    } else {
        Ok(())
    }
}

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
        let clock = ManualClock::starting_at("2030-01-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap());
        let ambient = clock.ambient();
        let test = TestDb::create_with(ambient).await;
        let mut owner = test.conn(Roles::Owner).await;
        owner
            .execute(
                "CREATE TABLE effects (run_id uuid NOT NULL, step text NOT NULL);
                 CREATE TABLE looks (run_id uuid PRIMARY KEY);
                 CREATE TABLE ends (run_id uuid NOT NULL, how text NOT NULL);
                 GRANT SELECT, INSERT, DELETE ON effects, looks, ends TO gpuaas_system",
            )
            .await
            .unwrap();
        let (wake, listening) = test.db.listen();
        Self { clock, db: test.db.clone(), wake, test, listening }
    }

    pub fn pass(&self, time: Duration) {
        self.clock.advance(TimeDelta::from_std(time).unwrap());
    }

    pub fn engine(&self, saga: &Arc<Recorder>) -> Engine {
        Engine::new(self.db.clone(), self.wake.clone(), vec![saga.bound()])
    }

    pub fn permit(&self) -> Permit {
        Permit::system("test", Origin::internal(CorrelationId(self.db.ambient().uuid())))
    }

    pub async fn try_start(&self, spec: &Record, subject: &str) -> Result<SagaRunId, StartError> {
        let mut tx = self.db.write(self.permit(), "test.start").await.unwrap();
        let started = saga::start(&mut tx, spec, subject, None::<OrgId>, &json!({ "n": 1 })).await;
        tx.commit(None).await.unwrap();
        started
    }

    pub async fn start(&self, subject: &str) -> SagaRunId {
        self.try_start(&SPEC, subject).await.unwrap()
    }

    pub async fn wake_up(&self, key: &str) -> bool {
        let mut tx = self.db.write(self.permit(), "test.wake").await.unwrap();
        let woken = saga::wake(&mut tx, key, json!({ "answer": 42 })).await.unwrap();
        tx.commit(None).await.unwrap();
        woken
    }

    pub async fn cancel(&self, subject: &str) -> bool {
        let mut tx = self.db.write(self.permit(), "test.cancel").await.unwrap();
        let cancelled = saga::cancel(&mut tx, subject, "not wanted").await.unwrap();
        tx.commit(None).await.unwrap();
        cancelled
    }

    pub async fn admin(&self) -> PgConnection {
        self.test.conn(Roles::Admin).await
    }

    pub async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&mut self.admin().await).await.unwrap()
    }

    /// State, failure and outputs.
    pub async fn run(&self, id: SagaRunId) -> (String, Option<String>, Value) {
        sqlx::query_as("SELECT state, failure, outputs FROM saga_runs WHERE id = $1")
            .bind(id.uuid())
            .fetch_one(&mut self.admin().await)
            .await
            .unwrap()
    }

    pub async fn state(&self, id: SagaRunId) -> String {
        self.run(id).await.0
    }

    pub async fn key(&self, id: SagaRunId) -> String {
        let key: Option<String> = sqlx::query_scalar("SELECT wake_key FROM saga_runs WHERE id = $1")
            .bind(id.uuid())
            .fetch_one(&mut self.admin().await)
            .await
            .unwrap();
        key.expect("the run waits")
    }

    /// How often each step of the run has its effect.
    pub async fn effects(&self, id: SagaRunId) -> BTreeMap<String, i64> {
        let rows: Vec<(String, i64)> =
            sqlx::query_as("SELECT step, count(*) FROM effects WHERE run_id = $1 GROUP BY step")
                .bind(id.uuid())
                .fetch_all(&mut self.admin().await)
                .await
                .unwrap();
        rows.into_iter().collect()
    }

    pub async fn ends(&self, id: SagaRunId) -> Vec<String> {
        sqlx::query_scalar("SELECT how FROM ends WHERE run_id = $1")
            .bind(id.uuid())
            .fetch_all(&mut self.admin().await)
            .await
            .unwrap()
    }

    /// Drives the run as far as it goes by itself, letting time pass but for what must be answered.
    pub async fn settle(&self, engine: &Engine, id: SagaRunId) -> String {
        for _ in 0..40 {
            engine.run_once().await.unwrap();
            let waits: bool = sqlx::query_scalar(
                "SELECT wake_key IS NOT NULL OR finished_at IS NOT NULL FROM saga_runs WHERE id = $1",
            )
            .bind(id.uuid())
            .fetch_one(&mut self.admin().await)
            .await
            .unwrap();
            if waits {
                break;
            }
            self.pass(Duration::from_secs(2));
        }
        self.state(id).await
    }
}

pub fn once_each(steps: &[&str]) -> BTreeMap<String, i64> {
    steps.iter().map(|step| ((*step).to_owned(), 1)).collect()
}

/// The metrics of this test's thread alone: under plain `cargo test` other tests of the process count beside it.
pub struct LocalMetrics {
    handle: PrometheusHandle,
    _recorded_here: LocalRecorderGuard<'static>,
}

impl LocalMetrics {
    pub fn start() -> Self {
        let recorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Self { handle: recorder.handle(), _recorded_here: metrics::set_default_local_recorder(recorder) }
    }

    pub fn text(&self) -> String {
        self.handle.render()
    }
}
