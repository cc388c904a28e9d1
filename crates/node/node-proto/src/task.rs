//! One piece of work as it is signed, and the checks of whoever receives it.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::ids::{NodeId, TaskId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{Keyset, TaskType, Work, canonical, keyset::SignatureError, text::Base64};

/// What precedes the signed bytes, so that a signature cannot be taken for one of another kind.
pub const TASK_CONTEXT: &[u8] = b"gpuaas task v1\n";
/// Clocks of nodes and control plane may differ by so much.
pub const CLOCK_TOLERANCE: TimeDelta = TimeDelta::minutes(5);

/// All that is signed. Fields may be added; none may change its meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    pub task_id: TaskId,
    pub node_id: NodeId,
    pub task_type: String,
    pub params: Value,
    /// Counts how often the same step of a workflow asked for this; each time is a task of its own.
    pub attempt: u32,
    pub issued_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub correlation_id: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    pub signer_version: u32,
}

/// A task on its way: the signed bytes themselves, so that reading cannot differ from signing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignedTask {
    /// The canonical bytes of a [`Task`].
    pub payload: Base64,
    pub signer_version: u32,
    /// By the signer's key, over the context and the payload.
    pub signature: Base64,
}

/// Why a task is refused. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum TaskError {
    #[error("the signer is not among those that this node believes")]
    UnknownSigner,
    #[error("the signature does not fit the task")]
    BadSignature,
    #[error("the task cannot be read")]
    Malformed,
    #[error("the task is for another node")]
    WrongNode,
    #[error("the task has expired")]
    Expired,
    #[error("the task was issued before this node enrolled, or in the future")]
    NotYetValid,
    #[error("this agent does not know this type of task")]
    UnknownType,
    #[error("the parameters do not fit the type of task")]
    BadParameters,
}

/// The bytes that a signature of `payload` covers.
pub fn signing_bytes(payload: &[u8]) -> Vec<u8> {
    [TASK_CONTEXT, payload].concat()
}

impl Task {
    pub fn canonical(&self) -> Result<Vec<u8>, serde_json::Error> {
        canonical::encode(self)
    }

    /// What is to be done, typed.
    pub fn work(&self) -> Result<Work, TaskError> {
        let kind = TaskType::parse(&self.task_type).ok_or(TaskError::UnknownType)?;
        Work::read(kind, self.params.clone()).map_err(|_| TaskError::BadParameters)
    }
}

impl SignedTask {
    /// Checks the signature and reads. Nothing else is checked: see [`SignedTask::accept`].
    pub fn open(&self, keyset: &Keyset) -> Result<Task, TaskError> {
        keyset.verify(self.signer_version, &signing_bytes(&self.payload.0), &self.signature.0).map_err(
            |error| match error {
                SignatureError::UnknownSigner => TaskError::UnknownSigner,
                SignatureError::BadSignature => TaskError::BadSignature,
            },
        )?;
        let task: Task = canonical::decode(&self.payload.0).ok_or(TaskError::Malformed)?;
        if task.signer_version == self.signer_version { Ok(task) } else { Err(TaskError::Malformed) }
    }

    /// Everything that a node checks before it looks into its journal: signature, addressee, time, type.
    /// `since` is when this node's journal began; work from before it may have been done and forgotten.
    pub fn accept(
        &self,
        keyset: &Keyset,
        node: NodeId,
        now: DateTime<Utc>,
        since: DateTime<Utc>,
    ) -> Result<(Task, Work), TaskError> {
        let task = self.open(keyset)?;
        if task.node_id != node {
            return Err(TaskError::WrongNode);
        }
        if task.expires_at + CLOCK_TOLERANCE <= now {
            return Err(TaskError::Expired);
        }
        if task.issued_at > now + CLOCK_TOLERANCE || task.issued_at + CLOCK_TOLERANCE < since {
            return Err(TaskError::NotYetValid);
        }
        let work = task.work()?;
        Ok((task, work))
    }
}
