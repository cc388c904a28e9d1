//! Transactions of runs: how they begin and end, what a step sees of them, and faults in them.

use pg::{Origin, Permit, WriteTx};
use serde_json::Value;

use crate::{
    decide::later,
    engine::Inner,
    failure::{FailureCode, StepError},
    faults::{At, FaultAction, FaultPoint},
    spec::SagaSpec,
    step::StepCx,
    store::{self, LEASE, Run},
};

/// How often a worker waits for a free connection before it leaves the run to the end of its lease.
const BEGIN_TRIES: u32 = 4;
const REASON: &str = "a step of a workflow";

/// Why a transaction did not come to its end.
pub(crate) enum Stop {
    Failed(StepError),
    /// The run is not as it was read.
    Lost,
    /// The database is; the run goes on after its lease.
    Away,
    Died,
}

impl From<StepError> for Stop {
    fn from(error: StepError) -> Self {
        Self::Failed(error)
    }
}

impl Inner {
    pub(crate) async fn begin(&self, spec: &SagaSpec, run: &Run) -> Result<WriteTx, Stop> {
        let origin = Origin {
            correlation_id: run.correlation,
            source_ip: None,
            traceparent: telemetry::current_traceparent().or_else(|| run.traceparent.clone()),
        };
        for _ in 0..BEGIN_TRIES {
            match self.db.write(Permit::system(REASON, origin.clone()), spec.audit_action).await {
                Ok(mut tx) => {
                    if let Some(org) = run.org {
                        tx.audit_in_org(org);
                    }
                    tx.record("saga_run", run.id, None::<&()>, None::<&()>).map_err(StepError::from)?;
                    return Ok(tx);
                }
                Err(pg::Error::Busy) => {}
                Err(error) => {
                    away(&error);
                    return Err(Stop::Away);
                }
            }
        }
        tracing::warn!("no database connection became free for a workflow; it goes on after its lease");
        Err(Stop::Away)
    }

    pub(crate) async fn fault(&self, run: &Run, point: FaultPoint) -> Result<(), Stop> {
        let Some(faults) = &self.faults else { return Ok(()) };
        let done = match faults.at(point) {
            FaultAction::Continue => return Ok(()),
            FaultAction::Die => {
                self.dead.cancel();
                return Err(Stop::Died);
            }
            FaultAction::Fail(error) if point.at != At::AfterCommit => return Err(error.into()),
            FaultAction::Fail(_) => return Ok(()),
            FaultAction::LoseLease => store::steal(&self.db, run).await,
            FaultAction::Cancel => store::cancel_now(&self.db, run).await,
        };
        done.map_err(|error| StepError::retry(FailureCode::Internal, error.to_string()).into())
    }
}

pub(crate) fn context<'a>(
    tx: &'a mut WriteTx,
    run: &'a Run,
    step: &'static str,
    outputs: &'a Value,
) -> StepCx<'a> {
    StepCx {
        tx,
        run_id: run.id,
        subject: &run.subject,
        org: run.org,
        attempt: run.progress.attempt,
        deadline: later(run.progress.now, LEASE),
        failure: run.progress.failure.as_ref(),
        cancel_reason: run.progress.cancel.as_deref(),
        input: &run.input,
        outputs,
        step,
        undoing: run.progress.undoing,
    }
}

/// When the answer is lost, nobody knows; the row tells whoever leases it next. When the server refused, nothing
/// happened.
pub(crate) async fn commit(tx: WriteTx) -> Result<(), Stop> {
    match tx.commit(None).await {
        Ok(_) => Ok(()),
        Err(pg::Error::Statement(error @ sqlx::Error::Database(_)) | pg::Error::LockTimeout(error)) => {
            Err(StepError::from(error).into())
        }
        Err(error) => {
            away(&error);
            Err(Stop::Away)
        }
    }
}

pub(crate) fn away(error: &pg::Error) {
    tracing::warn!(error = %error, "a workflow cannot go on for now; it does after its lease");
}
