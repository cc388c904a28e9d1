//! What is done with a task that was handed over: checked, looked up, taken or refused.

use kernel::ids::TaskId;
use node_proto::{
    SignedTask, Task, TaskError, Work,
    contract::{Ending, FailureCode, TaskResult},
};
use serde::Deserialize;

use super::Session;
use crate::{
    executor::Executor,
    journal::{Journal, Seen, failed},
    transport::Connect,
};

/// What is to follow.
pub(super) enum Next {
    /// It is the node's now.
    Run(Box<Task>, Box<Work>),
    /// It has ended; the journal has the result.
    ReportRecorded(TaskId),
    /// It was not begun, and the journal does not know it.
    Report(TaskId, Box<TaskResult>),
    Nothing,
}

/// The claimed identity, not verified: used only for lookups and answers.
#[derive(Deserialize)]
struct Named {
    task_id: TaskId,
}

impl<C: Connect, J: Journal, E: Executor> Session<C, J, E> {
    pub(super) async fn intake(&self, signed: &SignedTask) -> Next {
        let Ok(Named { task_id }) = serde_json::from_slice(&signed.payload.0) else {
            self.log.warn("tasks", "a task that cannot be read was handed over and ignored");
            return Next::Nothing;
        };
        match self.ledger.see(task_id).await {
            Ok(Seen::New) => {}
            Ok(Seen::Active) => return Next::Nothing,
            Ok(Seen::Ended(_)) => return Next::ReportRecorded(task_id),
            Err(error) => {
                self.log.error("journal", &format!("{task_id}: {error}"));
                return Next::Nothing;
            }
        }
        match self.accept(signed).await {
            Ok((task, work)) => match self.ledger.take(&task).await {
                Ok(()) => Next::Run(Box::new(task), Box::new(work)),
                Err(error) => {
                    self.log.error("journal", &format!("{task_id} was not begun: {error}"));
                    let ending = failed(FailureCode::Journal, error.to_string());
                    Next::Report(task_id, Box::new(TaskResult { ending, phases: Vec::new() }))
                }
            },
            Err(reason) => self.refuse(signed, task_id, reason).await,
        }
    }

    /// Every check. A signer that is not known may have come since: the trust in force is asked for once.
    async fn accept(&self, signed: &SignedTask) -> Result<(Task, Work), TaskError> {
        let check = || {
            let identity = self.identity();
            signed.accept(&identity.trust.keyset, self.node, self.ambient.now(), self.ledger.since())
        };
        match check() {
            Err(TaskError::UnknownSigner) if self.refresh_trust().await => check(),
            other => other,
        }
    }

    /// A task that was really meant for this node is remembered as refused, so that it stays so.
    async fn refuse(&self, signed: &SignedTask, task_id: TaskId, reason: TaskError) -> Next {
        self.log.warn("tasks", &format!("{task_id} is refused: {reason}"));
        let result = TaskResult { ending: Ending::Refused { reason }, phases: Vec::new() };
        let ours = signed.open(&self.identity().trust.keyset).ok().filter(|task| task.node_id == self.node);
        if let Some(task) = ours
            && self.ledger.refuse(&task, result.clone()).await.is_ok()
        {
            return Next::ReportRecorded(task_id);
        }
        Next::Report(task_id, Box::new(result))
    }
}
