//! The routes of the node listener, and what they carry.
//!
//! All but enrolment need a client certificate; the node is whoever the certificate names, and an id in the
//! path that is not that node's is refused. Bodies are JSON; errors are the envelope of the public API.

use chrono::{DateTime, Utc};
use kernel::ids::{NodeId, TaskId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{SignedKeyset, SignedTask, TaskError};

mod reports;

pub use reports::{
    FINDINGS_PER_HEARTBEAT, Finding, GpuMetrics, Heartbeat, HeartbeatAnswer, Inventory, LOG_LINE_BYTES,
    LOG_LINES_PER_BATCH, LogBatch, LogLevel, LogLine, LogsTaken, NodeMetrics, TerminalEndReason,
    TerminalSessionReport,
};

/// The minor version that a side speaks, as `1.2`. Both send it with every message.
pub const CONTRACT_HEADER: &str = "x-gpuaas-node-contract";
/// The control plane's clock in milliseconds since 1970, with every answer: nodes report how far theirs is off.
pub const TIME_HEADER: &str = "x-gpuaas-time-ms";

/// Newest first. Between neighbours only optional fields were added.
pub const CONTRACT: &str = "1.2";
pub const PREVIOUS_CONTRACT: &str = "1.1";

/// The name that certificates carry: `spiffe://<domain>/node/<id>`.
pub fn spiffe_id(trust_domain: &str, node: NodeId) -> String {
    format!("spiffe://{trust_domain}/node/{node}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The token in the body; there is no certificate yet.
    Token,
    Certificate,
}

/// One route, as data: the gateway routes by it, the agent calls by it, the document shows it.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub id: RouteId,
    pub method: &'static str,
    pub path: &'static str,
    pub proof: Proof,
    pub summary: &'static str,
    /// The largest request body in bytes.
    pub body_limit: usize,
}

macro_rules! routes {
    ($($name:ident = $id:ident $text:literal, $method:literal $path:literal, $proof:ident, $limit:expr, $summary:literal;)*) => {
        /// Which route it is. Whoever serves or describes routes matches all of them, so none can be forgotten.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RouteId { $($id),* }

        impl RouteId {
            /// As the document and metrics call it.
            pub const fn name(self) -> &'static str { match self { $(Self::$id => $text),* } }
        }

        $(pub const $name: Route = Route {
            id: RouteId::$id, method: $method, path: $path, proof: Proof::$proof, summary: $summary, body_limit: $limit,
        };)*
        pub const ROUTES: &[&Route] = &[$(&$name),*];
    };
}

const KIB: usize = 1024;

routes! {
    ENROLL = Enroll "node_enroll", "POST" "/internal/v1/nodes/enroll", Token, 16 * KIB,
        "Exchange a bootstrap or repair token and a certificate request for a certificate";
    RENEW = Renew "node_renew", "POST" "/internal/v1/nodes/{node_id}/cert/renew", Certificate, 16 * KIB,
        "Exchange the current certificate and a new request for a new certificate";
    TRUST = Trust "node_trust", "GET" "/internal/v1/nodes/{node_id}/trust", Certificate, 0,
        "The authorities and signers in force";
    WAIT = Wait "node_tasks_wait", "GET" "/internal/v1/nodes/{node_id}/tasks/wait", Certificate, 0,
        "Wait for work, at most 30 seconds; answered at once when there is some";
    PROGRESS = Progress "node_task_progress", "POST" "/internal/v1/nodes/{node_id}/tasks/{task_id}/progress", Certificate, 16 * KIB,
        "Say that a task was started, or how far it has come";
    RESULT = Result "node_task_result", "POST" "/internal/v1/nodes/{node_id}/tasks/{task_id}/result", Certificate, 1024 * KIB,
        "Say how a task ended; saying the same again changes nothing";
    HEARTBEAT = Heartbeat "node_heartbeat", "POST" "/internal/v1/nodes/{node_id}/heartbeat", Certificate, 256 * KIB,
        "Report what the node is and has";
    LOGS = Logs "node_logs", "POST" "/internal/v1/nodes/{node_id}/logs", Certificate, 256 * KIB,
        "Hand over log lines, redacted already";
    PROGRAM = Program "node_program", "GET" "/internal/v1/nodes/{node_id}/programs/{sha256}", Certificate, 0,
        "Fetch the agent program with this digest";
}

impl Route {
    /// The path with its parameters filled in, in order.
    pub fn fill(&self, values: &[&str]) -> String {
        let (mut out, mut values) = (String::new(), values.iter());
        for part in self.path.split('/').skip(1) {
            out.push('/');
            match part.starts_with('{').then(|| values.next()).flatten() {
                Some(value) => out += value,
                None => out += part,
            }
        }
        out
    }
}

// ── enrolment and trust ─────────────────────────────────────────────────────────────────────────────

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct EnrollRequest {
    pub node_id: NodeId,
    /// Shown once to the operator. Never logged.
    pub token: String,
    /// PKCS #10. Only its public key counts: name, use and lifetime are the authority's.
    pub csr_pem: String,
    /// Must be the one that the operator named.
    pub hostname: String,
    pub agent_version: String,
    #[serde(default)]
    pub machine_id: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Enrolled {
    pub node_id: NodeId,
    pub certificate: IssuedCertificate,
    pub trust: Trust,
    pub heartbeat_seconds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssuedCertificate {
    /// The certificate and what leads to a root, in this order.
    pub chain_pem: String,
    pub not_before: DateTime<Utc>,
    pub not_after: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trust {
    /// Roots that the control plane's own certificate may chain to.
    pub authorities: Vec<TrustedAuthority>,
    pub keyset: SignedKeyset,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrustedAuthority {
    pub id: kernel::ids::AuthorityId,
    pub root_pem: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RenewRequest {
    pub csr_pem: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Renewed {
    pub certificate: IssuedCertificate,
    pub trust: Trust,
}

// ── work ────────────────────────────────────────────────────────────────────────────────────────────

/// The longest a wait may take.
pub const WAIT_SECONDS: u32 = 30;
/// The most tasks that one answer brings.
pub const WAIT_TASKS: u32 = 16;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WaitQuery {
    /// At most [`WAIT_SECONDS`], which is also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// How many tasks the node has room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<u32>,
    /// Since 1.1: the tasks that the node has taken over and not finished reporting, separated by commas.
    /// A task that was handed out and is not in this list was never started, and is handed out again once
    /// its lease has lapsed. Without the list, nothing is handed out twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holding: Option<String>,
}

impl WaitQuery {
    pub fn holding(ids: &[TaskId]) -> String {
        ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Waited {
    /// Empty when there was nothing to do.
    pub tasks: Vec<SignedTask>,
    /// Since 1.1: see [`HeartbeatAnswer::renew_now`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_now: Option<bool>,
    /// Since 1.2: a gateway needs this node, which is to dial it. Not signed: the node dials only servers of the authority
    /// that it trusts, and opens nothing there without a signed grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dial: Option<Dial>,
}

/// Where a tunnel is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Dial {
    /// `https://host:port` of the gateway that asks.
    pub url: String,
    pub class: TunnelClass,
}

/// What a tunnel is for, and so how large its windows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum TunnelClass {
    /// Terminals and logs.
    Interactive,
    /// TCP connections.
    Bulk,
    /// One that a newer control plane knows; it is not dialled.
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phase {
    pub name: String,
    pub started_at: DateTime<Utc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// The first progress says that the task was started; from then on it is the node's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// All phases so far.
    pub phases: Vec<Phase>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgressAnswer {
    /// Nobody waits for it any more: stop if that can be done cleanly.
    pub cancelled: bool,
}

/// How a task ended on the node. The same task always ends the same way, however often it is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskResult {
    pub ending: Ending,
    #[serde(default)]
    pub phases: Vec<Phase>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Ending {
    Succeeded {
        output: Value,
    },
    /// It was tried, and failed as the code says.
    Failed {
        failure: TaskFailure,
    },
    /// It was not begun, and nothing was done.
    Refused {
        reason: TaskError,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskFailure {
    pub code: FailureCode,
    /// For operators; redacted and bounded at the source.
    pub message: String,
    /// Why exactly, where the code alone does not say what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<FailureCause>,
}

impl TaskFailure {
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), cause: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum FailureCause {
    /// With `unavailable`: the node takes no new tenants until somebody undrains it.
    Drained,
    /// One that a newer agent knows.
    #[serde(other)]
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum FailureCode {
    /// A driver or a program that it ran failed.
    Driver,
    Timeout,
    /// The agent was stopped while it ran; how far it came is not known.
    Interrupted,
    /// The journal could not be written, so it was not begun.
    Journal,
    /// The node is draining, busy, or lacks what the task needs.
    Unavailable,
    /// The input makes no sense on this node.
    Invalid,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResultAnswer {
    /// False when the task was over before (expired, cancelled): the result is kept as evidence only.
    pub counted: bool,
}

/// What a joining node is told outside the contract: where to go, and what to pin. Nothing in it is secret
/// but the token, which is kept apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JoinInfo {
    pub node_id: NodeId,
    pub hostname: String,
    /// `https://host:port` of the node listener.
    pub url: String,
    /// SHA-256 of the root certificate in DER, in hex; all roots in force.
    pub root_sha256: Vec<String>,
    /// The public key, in hex, that signs the list of signers.
    pub keyset_key: String,
}
