//! What every saga must bear, as checks that a saga's tests run.
//!
//! A [`World`] starts runs of the saga under test, answers what its steps wait for, and says what must hold when a
//! run is over. [`run_all`] lets each step fail (once, and for good), lets the worker die before, in and after each
//! step, takes its lease away, cancels, lets every wait and the whole run time out, does the same on the way back,
//! and answers with the first rule that does not hold. The kit moves time by itself, in the run's row, and works
//! the runs itself: nothing else may work this saga in the same database meanwhile.
//!
//! Which moments there are is learned from runs without faults, so the kit follows the saga as it changes.

mod case;

use std::sync::Arc;

use async_trait::async_trait;
use kernel::{Failure, ids::SagaRunId};
use pg::{Db, Wake};

use crate::{decide::RunEnd, faults::At, spec::OnFailure, step::Saga};
use case::{Case, Fault, Patience, Point};

#[async_trait]
pub trait World: Send + Sync {
    fn db(&self) -> Db;
    fn wake(&self) -> Wake;
    fn saga(&self) -> Arc<dyn Saga>;

    /// Makes something new for a run to be about, and starts the run.
    async fn start(&self) -> Result<SagaRunId, Failure>;

    /// Brings a suspended step what it waits for, as the world would: in the end [`crate::wake`] with the key.
    async fn answer(&self, waiting: &Suspension) -> Result<(), Failure>;

    /// What must hold when the run is over: each effect once, or a clean slate. Says what does not.
    async fn check(&self, run: SagaRunId, end: RunEnd) -> Result<(), String>;
}

/// A step that waits.
#[derive(Clone, Debug)]
pub struct Suspension {
    pub run_id: SagaRunId,
    pub subject: String,
    pub step: &'static str,
    pub undo: bool,
    pub attempt: u32,
    pub key: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Violation {
    #[error("{case}: {rule}")]
    Rule { case: String, rule: String },
    #[error("the database failed where it should not")]
    Database(#[from] pg::Error),
}

impl From<sqlx::Error> for Violation {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.into())
    }
}

const MOMENTS: [At; 3] = [At::BeforeStep, At::InStep, At::AfterCommit];

pub async fn run_all(world: &dyn World) -> Result<(), Violation> {
    without_faults_it_succeeds(world).await?;
    a_step_that_fails_once_is_tried_again(world).await?;
    a_step_that_fails_for_good_ends_the_run_cleanly(world).await?;
    a_worker_that_dies_anywhere_is_replaced(world).await?;
    a_worker_that_lost_its_lease_has_no_effect(world).await?;
    a_cancelled_run_is_given_up_wherever_it_is(world).await?;
    a_run_whose_time_is_over_is_given_up(world).await?;
    an_answer_that_never_comes_ends_in_time(world).await?;
    taking_back_bears_the_same(world).await
}

/// The moments of a run without faults, and those of the way back from its last step.
struct Moments {
    forward: Vec<Point>,
    back: Vec<Point>,
}

impl Moments {
    async fn learn(world: &dyn World) -> Result<Self, Violation> {
        let mut case = Case::start(world, "learning the way".to_owned()).await?;
        case.until_over(Patience::Answer).await?;
        let forward = case.points(false);
        let Some(last) = forward.last().copied() else {
            return Ok(Self { forward, back: Vec::new() });
        };
        let mut case = Case::start(world, "learning the way back".to_owned()).await?;
        case.plan(last, At::InStep, Fault::FailForGood, 1);
        case.until_over(Patience::Answer).await?;
        Ok(Self { forward, back: case.points(true) })
    }
}

fn given_up(world: &dyn World) -> RunEnd {
    match world.saga().spec().on_failure {
        OnFailure::Undo => RunEnd::Undone,
        OnFailure::Stuck => RunEnd::Stuck,
    }
}

pub async fn without_faults_it_succeeds(world: &dyn World) -> Result<(), Violation> {
    let mut case = Case::start(world, "without faults".to_owned()).await?;
    case.ends(RunEnd::Succeeded, Patience::Answer).await
}

pub async fn a_step_that_fails_once_is_tried_again(world: &dyn World) -> Result<(), Violation> {
    for point in Moments::learn(world).await?.forward {
        let mut case = Case::start(world, format!("{point} fails once")).await?;
        case.plan(point, At::InStep, Fault::FailOnce, 1);
        let tried_again = case.attempts(point) > 1;
        let end = if tried_again { RunEnd::Succeeded } else { given_up(world) };
        case.ends(end, Patience::Answer).await?;
    }
    Ok(())
}

pub async fn a_step_that_fails_for_good_ends_the_run_cleanly(world: &dyn World) -> Result<(), Violation> {
    for point in Moments::learn(world).await?.forward {
        for at in [At::BeforeStep, At::InStep] {
            let mut case = Case::start(world, format!("{point} fails for good, {at:?}")).await?;
            case.plan(point, at, Fault::FailForGood, 1);
            case.ends(given_up(world), Patience::Answer).await?;
        }
    }
    Ok(())
}

pub async fn a_worker_that_dies_anywhere_is_replaced(world: &dyn World) -> Result<(), Violation> {
    for point in Moments::learn(world).await?.forward {
        for at in MOMENTS {
            let mut case = Case::start(world, format!("the worker dies at {point}, {at:?}")).await?;
            case.plan(point, at, Fault::Die, 2);
            case.ends(RunEnd::Succeeded, Patience::Answer).await?;
        }
    }
    Ok(())
}

pub async fn a_worker_that_lost_its_lease_has_no_effect(world: &dyn World) -> Result<(), Violation> {
    for point in Moments::learn(world).await?.forward {
        for at in MOMENTS {
            let mut case = Case::start(world, format!("the lease is lost at {point}, {at:?}")).await?;
            case.plan(point, at, Fault::LoseLease, 1);
            case.ends(RunEnd::Succeeded, Patience::Answer).await?;
        }
    }
    Ok(())
}

pub async fn a_cancelled_run_is_given_up_wherever_it_is(world: &dyn World) -> Result<(), Violation> {
    let points = Moments::learn(world).await?.forward;
    for (nth, point) in points.iter().copied().enumerate() {
        for at in MOMENTS {
            let mut case = Case::start(world, format!("cancelled at {point}, {at:?}")).await?;
            case.plan(point, at, Fault::Cancel, 1);
            // After the last commit there is nothing left to cancel.
            let over = nth + 1 == points.len() && at == At::AfterCommit;
            let end = if over { RunEnd::Succeeded } else { given_up(world) };
            case.ends(end, Patience::Answer).await?;
        }
    }
    Ok(())
}

pub async fn a_run_whose_time_is_over_is_given_up(world: &dyn World) -> Result<(), Violation> {
    for point in Moments::learn(world).await?.forward {
        let mut case = Case::start(world, format!("the run's time is over at {point}")).await?;
        case.plan(point, At::BeforeStep, Fault::Die, 1);
        case.until_dead().await?;
        case.run_out_of_time().await?;
        case.ends(given_up(world), Patience::Answer).await?;
    }
    Ok(())
}

/// What a saga does about a timeout is its own affair, as long as it comes to a clean end.
pub async fn an_answer_that_never_comes_ends_in_time(world: &dyn World) -> Result<(), Violation> {
    let mut waits: Vec<&'static str> = Vec::new();
    for point in Moments::learn(world).await?.forward {
        if point.resumed && !waits.contains(&point.step) {
            waits.push(point.step);
        }
    }
    for step in waits {
        for (patience, how) in [(Patience::TimeOutOnce(step), "once"), (Patience::TimeOut(step), "always")] {
            let mut case = Case::start(world, format!("no answer to {step}, {how}")).await?;
            let end = case.until_over(patience).await?;
            case.check(end).await?;
        }
    }
    Ok(())
}

pub async fn taking_back_bears_the_same(world: &dyn World) -> Result<(), Violation> {
    let Moments { forward, back } = Moments::learn(world).await?;
    let (Some(last), OnFailure::Undo) = (forward.last().copied(), world.saga().spec().on_failure) else {
        return Ok(());
    };
    for point in back {
        for at in MOMENTS {
            for fault in [Fault::Die, Fault::LoseLease] {
                let mut case = Case::start(world, format!("{fault:?} at {point}, {at:?}")).await?;
                case.plan(last, At::InStep, Fault::FailForGood, 1);
                case.plan(point, at, fault, 1);
                case.ends(RunEnd::Undone, Patience::Answer).await?;
            }
        }
        let mut case = Case::start(world, format!("{point} fails twice")).await?;
        case.plan(last, At::InStep, Fault::FailForGood, 1);
        case.plan(point, At::InStep, Fault::FailOnce, 2);
        case.ends(RunEnd::Undone, Patience::Answer).await?;
        let mut case = Case::start(world, format!("{point} fails for good")).await?;
        case.plan(last, At::InStep, Fault::FailForGood, 1);
        case.plan(point, At::InStep, Fault::FailForGood, 1);
        case.ends(RunEnd::Stuck, Patience::Answer).await?;
    }
    Ok(())
}
