//! Sessions as people see them.

use chrono::{DateTime, Utc};
use kernel::{
    Permission,
    ids::{AllocationId, TerminalSessionId},
    principal::PrincipalId,
    secret::ShownOnce,
};
use node_proto::grant::PtyAccess;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What whoever enters a machine holds in its project.
pub const ENTERING: Permission = Permission::AllocationOperate;

/// Where the database says that a session is to be ended (its id).
pub const END_CHANNEL: &str = "gpuaas_terminals";

/// What somebody wants to do with a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TerminalAccess")]
pub enum Access {
    /// Type, if nobody else does.
    #[default]
    Write,
    /// Type; whoever did before is detached.
    TakeOver,
    /// See what is printed.
    Watch,
}

impl From<Access> for PtyAccess {
    fn from(access: Access) -> Self {
        match access {
            Access::Write => Self::Write,
            Access::TakeOver => Self::TakeOver,
            Access::Watch => Self::Watch,
        }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TerminalSession {
    pub id: TerminalSessionId,
    pub allocation_id: AllocationId,
    /// Whose session it is: nobody else can attach.
    #[serde(rename = "created_by")]
    pub principal: PrincipalId,
    pub created_at: DateTime<Utc>,
    /// The session ends then, at the latest.
    pub expires_at: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_attached_at: Option<DateTime<Utc>>,
    /// How often a client attached.
    pub attachments: i32,
    /// Absent while it is open, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    /// `exited`, `expired`, `idle`, `ended` by somebody, `released` with its machine, `node_stopping`, `lost`, or `unused`
    /// when nobody attached in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<String>,
    /// Of the shell, when it ended by itself; above 128 the signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
}

/// A token, shown once.
#[derive(Serialize, JsonSchema)]
pub struct TerminalTokenIssued {
    /// For the header `Sec-WebSocket-Protocol` (`gpuaas.terminal.v1, token.<token>`) or as bearer. It works once.
    pub token: ShownOnce,
    pub session_id: TerminalSessionId,
    pub expires_at: DateTime<Utc>,
    /// Where the WebSocket is, on this server.
    pub url: String,
}
