//! The kit that every saga runs, on sagas of which everything is known.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use kernel::{Failure, ids::SagaRunId};
use pg::{Db, Wake};
use saga::{
    FailureCode, RunEnd, Saga, StepError,
    conformance::{self, Suspension, Violation, World},
};
use serde_json::json;

use crate::support::{FORWARD, Fixture, Recorder, SPEC, once_each};

struct Recording {
    fixture: Fixture,
    saga: Arc<Recorder>,
    started: AtomicU32,
}

impl Recording {
    async fn for_saga(saga: Arc<Recorder>) -> Self {
        Self { fixture: Fixture::create().await, saga, started: AtomicU32::new(0) }
    }
}

#[async_trait]
impl World for Recording {
    fn db(&self) -> Db {
        self.fixture.db.clone()
    }
    fn wake(&self) -> Wake {
        self.fixture.wake.clone()
    }
    fn saga(&self) -> Arc<dyn Saga> {
        self.saga.bound()
    }

    async fn start(&self) -> Result<SagaRunId, Failure> {
        let subject = format!("thing/{}", self.started.fetch_add(1, Ordering::SeqCst));
        Ok(self.fixture.try_start(self.saga.spec, &subject).await?)
    }

    async fn answer(&self, waiting: &Suspension) -> Result<(), Failure> {
        let mut tx = self.fixture.db.write(self.fixture.permit(), "test.answer").await?;
        assert!(saga::wake(&mut tx, &waiting.key, json!({ "answer": waiting.attempt })).await?);
        tx.commit(None).await?;
        Ok(())
    }

    async fn check(&self, run: SagaRunId, end: RunEnd) -> Result<(), String> {
        let steps: Vec<&str> = self.saga.spec.steps.iter().map(|step| step.name).collect();
        let effects = self.fixture.effects(run).await;
        let held = match end {
            RunEnd::Succeeded => effects == once_each(&steps),
            // What has no undo stays.
            RunEnd::Undone => effects.keys().all(|step| step == "look"),
            RunEnd::Stuck => effects.values().all(|count| *count == 1),
        };
        let ends = self.fixture.ends(run).await;
        if held && ends == [end.name()] { Ok(()) } else { Err(format!("{effects:?}, {ends:?}")) }
    }
}

#[tokio::test]
async fn a_saga_with_undo_conforms() {
    let world = Recording::for_saga(Recorder::good()).await;
    conformance::run_all(&world).await.unwrap();
    let (runs, live) = (
        world.fixture.count("SELECT count(*) FROM saga_runs").await,
        world.fixture.count("SELECT count(*) FROM saga_runs WHERE finished_at IS NULL").await,
    );
    assert!(runs > 80, "the kit tried {runs} runs");
    assert_eq!(live, 0);
}

#[tokio::test]
async fn a_forward_only_saga_conforms() {
    let world = Recording::for_saga(Recorder::with_steps(&FORWARD, |_, _, _| Ok(()))).await;
    conformance::run_all(&world).await.unwrap();
}

#[tokio::test]
async fn the_kit_finds_a_saga_whose_step_fails_by_itself() {
    let fails = |step: &str, undo: bool, _: u32| match (step, undo) {
        ("open", false) => Err(StepError::fail(FailureCode::Internal, "never works")),
        _ => Ok(()),
    };
    let world = Recording::for_saga(Recorder::with_steps(&SPEC, fails)).await;
    let found = conformance::run_all(&world).await;
    assert!(matches!(&found, Err(Violation::Rule { rule, .. }) if rule.contains("never works")), "{found:?}");
}
