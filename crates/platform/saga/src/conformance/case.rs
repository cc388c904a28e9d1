//! One run of the saga under test, with the faults that are planned for it.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use kernel::{Failure, ids::SagaRunId};

use super::{Suspension, Violation, World};
use crate::{
    decide::RunEnd,
    engine::Engine,
    failure::{FailureCode, StepError},
    faults::{At, FaultAction, FaultPoint, Faults},
    spec::SagaSpec,
    step::Saga,
};

/// More moves than any sane run makes.
const MOST_MOVES: u32 = 500;

/// A call of a step, wherever in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub step: &'static str,
    pub undo: bool,
    pub resumed: bool,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = match (self.undo, self.resumed) {
            (false, false) => "run",
            (false, true) => "resume",
            (true, false) => "undo",
            (true, true) => "resume_undo",
        };
        write!(f, "{call} of {}", self.step)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Die,
    FailOnce,
    FailForGood,
    LoseLease,
    Cancel,
}

/// What is done about a step that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Answer,
    /// The first wait of this step times out, the others are answered.
    TimeOutOnce(&'static str),
    TimeOut(&'static str),
}

struct Planned {
    point: Point,
    at: At,
    fault: Fault,
    times: u32,
}

/// Plays the faults of one run, and keeps what was called.
struct Script {
    run: SagaRunId,
    planned: Mutex<Vec<Planned>>,
    called: Mutex<Vec<Point>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Faults for Script {
    fn at(&self, moment: FaultPoint) -> FaultAction {
        if moment.run_id != self.run {
            return FaultAction::Continue;
        }
        let point = Point { step: moment.step, undo: moment.undo, resumed: moment.resumed };
        if moment.at == At::BeforeStep {
            lock(&self.called).push(point);
        }
        let mut planned = lock(&self.planned);
        let due = planned.iter_mut().find(|p| p.point == point && p.at == moment.at && p.times > 0);
        let Some(due) = due else { return FaultAction::Continue };
        due.times -= 1;
        match due.fault {
            Fault::Die => FaultAction::Die,
            Fault::FailOnce => {
                FaultAction::Fail(StepError::retry(FailureCode::Internal, "a fault on purpose"))
            }
            Fault::FailForGood => {
                FaultAction::Fail(StepError::fail(FailureCode::Internal, "a fault on purpose"))
            }
            Fault::LoseLease => FaultAction::LoseLease,
            Fault::Cancel => FaultAction::Cancel,
        }
    }
}

pub(super) struct Case<'a> {
    world: &'a dyn World,
    saga: Arc<dyn Saga>,
    name: String,
    script: Arc<Script>,
    engine: Engine,
    timed_out: bool,
}

struct RunSnapshot {
    end: Option<RunEnd>,
    waiting: Option<Suspension>,
}

impl<'a> Case<'a> {
    pub async fn start(world: &'a dyn World, name: String) -> Result<Self, Violation> {
        let started = world.start().await;
        let run = started.map_err(|failure| {
            let rule = format!("a run cannot be started: {}", text(&failure));
            Violation::Rule { case: name.clone(), rule }
        })?;
        let script = Arc::new(Script { run, planned: Mutex::default(), called: Mutex::default() });
        let engine = worker(world, &script);
        Ok(Self { world, saga: world.saga(), name, script, engine, timed_out: false })
    }

    pub fn plan(&self, point: Point, at: At, fault: Fault, times: u32) {
        lock(&self.script.planned).push(Planned { point, at, fault, times });
    }

    fn spec(&self) -> &SagaSpec {
        self.saga.spec()
    }

    pub fn attempts(&self, point: Point) -> u32 {
        let step = self.spec().steps.iter().find(|step| step.name == point.step);
        step.map_or(1, |step| step.retry.attempts)
    }

    /// The calls that were made, each once.
    pub fn points(&self, undo: bool) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        for point in lock(&self.script.called).iter().filter(|point| point.undo == undo) {
            if !points.contains(point) {
                points.push(*point);
            }
        }
        points
    }

    fn broken(&self, rule: impl Into<String>) -> Violation {
        Violation::Rule { case: self.name.clone(), rule: rule.into() }
    }

    pub async fn ends(&mut self, expected: RunEnd, patience: Patience) -> Result<(), Violation> {
        let end = self.until_over(patience).await?;
        if end != expected {
            let failure = self.failure().await?;
            return Err(self.broken(format!("ended {end:?} rather than {expected:?}: {failure}")));
        }
        self.check(end).await
    }

    pub async fn check(&self, end: RunEnd) -> Result<(), Violation> {
        self.undone_as_begun(end).await?;
        self.world.check(self.script.run, end).await.map_err(|rule| self.broken(rule))
    }

    /// Works the run to its end; workers that die are replaced, and time passes as it must.
    pub async fn until_over(&mut self, patience: Patience) -> Result<RunEnd, Violation> {
        for _ in 0..MOST_MOVES {
            let look = self.run_read().await?;
            if let Some(end) = look.end {
                return Ok(end);
            }
            match look.waiting {
                Some(waiting) if self.times_out(&waiting, patience) => self.time_out().await?,
                Some(waiting) => {
                    let answered = self.world.answer(&waiting).await;
                    answered.map_err(|f| {
                        self.broken(format!("{} cannot be answered: {}", waiting.step, text(&f)))
                    })?;
                    self.hurry().await?;
                }
                None => self.hurry().await?,
            }
            self.engine.run_once().await?;
            if self.engine.is_dead() {
                self.engine = worker(self.world, &self.script);
            }
        }
        Err(self.broken("it did not come to an end"))
    }

    pub async fn until_dead(&mut self) -> Result<(), Violation> {
        for _ in 0..MOST_MOVES {
            let look = self.run_read().await?;
            if let Some(waiting) = look.waiting {
                let answered = self.world.answer(&waiting).await;
                answered
                    .map_err(|f| self.broken(format!("{} cannot be answered: {}", waiting.step, text(&f))))?;
            }
            self.hurry().await?;
            self.engine.run_once().await?;
            if self.engine.is_dead() {
                self.engine = worker(self.world, &self.script);
                return Ok(());
            }
        }
        Err(self.broken("the worker was never there to die"))
    }

    fn times_out(&mut self, waiting: &Suspension, patience: Patience) -> bool {
        match patience {
            Patience::TimeOut(step) => waiting.step == step && !waiting.undo,
            Patience::TimeOutOnce(step) if waiting.step == step && !self.timed_out => {
                self.timed_out = true;
                true
            }
            _ => false,
        }
    }

    async fn run_read(&self) -> Result<RunSnapshot, Violation> {
        let mut upkeep = self.world.db().upkeep(KIT).await?;
        let row = sqlx::query!(
            "SELECT state, subject, step, attempt, CASE WHEN signal IS NULL THEN wake_key END AS waiting
             FROM saga_runs WHERE id = $1",
            self.script.run.uuid(),
        )
        .fetch_optional(upkeep.conn())
        .await?
        .ok_or_else(|| self.broken("the run is not there"))?;
        let end = match row.state.as_str() {
            "succeeded" => Some(RunEnd::Succeeded),
            "undone" => Some(RunEnd::Undone),
            "stuck" => Some(RunEnd::Stuck),
            _ => None,
        };
        let step = usize::try_from(row.step).ok().and_then(|step| self.spec().step(step));
        let waiting = row.waiting.zip(step).map(|(key, step)| Suspension {
            run_id: self.script.run,
            subject: row.subject,
            step: step.name,
            undo: row.state == "undoing",
            attempt: u32::try_from(row.attempt).unwrap_or(1),
            key,
        });
        Ok(RunSnapshot { end, waiting })
    }

    async fn failure(&self) -> Result<String, Violation> {
        let mut upkeep = self.world.db().upkeep(KIT).await?;
        let row = sqlx::query_scalar!("SELECT failure FROM saga_runs WHERE id = $1", self.script.run.uuid());
        Ok(row.fetch_one(upkeep.conn()).await?.unwrap_or_default())
    }

    /// Leases run out, and delays are over.
    async fn hurry(&self) -> Result<(), Violation> {
        let now = self.world.db().ambient().now();
        let mut upkeep = self.world.db().upkeep(KIT).await?;
        sqlx::query!(
            "UPDATE saga_runs SET lease_until = NULL,
                wake_at = CASE WHEN wake_key IS NULL OR signal IS NOT NULL THEN least(wake_at, $2) ELSE wake_at END
             WHERE id = $1",
            self.script.run.uuid(),
            now,
        )
        .execute(upkeep.conn())
        .await?;
        Ok(())
    }

    /// The wait is over without an answer.
    async fn time_out(&self) -> Result<(), Violation> {
        let now = self.world.db().ambient().now();
        let mut upkeep = self.world.db().upkeep(KIT).await?;
        sqlx::query!(
            "UPDATE saga_runs SET lease_until = NULL, wake_at = $2, attempt_deadline = $2 WHERE id = $1",
            self.script.run.uuid(),
            now,
        )
        .execute(upkeep.conn())
        .await?;
        Ok(())
    }

    pub async fn run_out_of_time(&self) -> Result<(), Violation> {
        let now = self.world.db().ambient().now();
        let mut upkeep = self.world.db().upkeep(KIT).await?;
        sqlx::query!(
            "UPDATE saga_runs SET lease_until = NULL, wake_at = $2, deadline = $2 WHERE id = $1",
            self.script.run.uuid(),
            now,
        )
        .execute(upkeep.conn())
        .await?;
        Ok(())
    }

    /// What was begun was taken back, last first. A step that was only about to be called may be among it.
    async fn undone_as_begun(&self, end: RunEnd) -> Result<(), Violation> {
        let mut upkeep = self.world.db().upkeep(KIT).await?;
        let undone: Vec<String> = sqlx::query_scalar!(
            "SELECT step FROM saga_steps WHERE run_id = $1 AND undo AND state = 'done' ORDER BY seq",
            self.script.run.uuid(),
        )
        .fetch_all(upkeep.conn())
        .await?;
        let called = self.points(false);
        let begun = self.spec().steps.iter().filter(|s| called.iter().any(|p| p.step == s.name)).count();
        let back = |steps: usize| -> Vec<String> {
            let steps = self.spec().steps.iter().take(steps).rev();
            steps.filter(|step| step.has_undo).map(|step| step.name.to_owned()).collect()
        };
        let expected = [back(begun), back(begun + 1)];
        let holds = match end {
            RunEnd::Succeeded => undone.is_empty(),
            RunEnd::Undone => expected.contains(&undone),
            RunEnd::Stuck => expected.iter().any(|expected| expected.starts_with(&undone)),
        };
        if holds {
            return Ok(());
        }
        Err(self.broken(format!("taken back was {undone:?}, of the first {begun} steps")))
    }
}

const KIT: &str = "test a workflow";

fn worker(world: &dyn World, script: &Arc<Script>) -> Engine {
    Engine::new(world.db(), world.wake(), vec![world.saga()]).with_faults(script.clone())
}

fn text(failure: &Failure) -> String {
    match failure {
        Failure::Problem(problem) => problem.to_string(),
        Failure::Internal(error) => error.to_string(),
        Failure::Bug(bug) => bug.to_string(),
    }
}
