//! The calls of the node contract, typed.
//!
//! An answer is what was asked for, or an error that says one of two things: it may work later, or the control
//! plane has looked at the request and will not have it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use http::{HeaderMap, Response, StatusCode, header};
use kernel::{
    Ambient,
    ids::{NodeId, TaskId},
};
use node_proto::SignedTask;
use node_proto::contract::{
    self, EnrollRequest, Enrolled, Heartbeat, HeartbeatAnswer, LogBatch, LogsTaken, Progress, ProgressAnswer,
    RenewRequest, Renewed, ResultAnswer, Route, TaskResult, Trust, WAIT_SECONDS, WaitQuery, Waited,
};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::sync::watch;

use crate::transport::{self, Address, Connect, Transport, TransportError};

const CALL_LIMIT: Duration = Duration::from_secs(20);
const WAIT_LIMIT: Duration = Duration::from_secs(WAIT_SECONDS as u64 + 15);
const LARGEST_ANSWER: usize = 1024 * 1024;
/// Tasks are small, but there can be several in one answer.
const LARGEST_WAITED: usize = 4 * 1024 * 1024;
const UNKNOWN_OFFSET: i64 = i64::MIN;

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("the control plane cannot answer now ({status}): {message}")]
    Unavailable { status: u16, message: String, retry_after: Option<Duration> },
    #[error("the control plane refuses ({status}, {code}): {message}")]
    Refused { status: u16, code: String, message: String },
    #[error("the answer of the control plane cannot be read: {0}")]
    Unreadable(String),
    #[error("the message has {bytes} bytes, more than the {limit} that are allowed")]
    TooLarge { bytes: usize, limit: usize },
}

impl CallError {
    /// The control plane does not believe that this is the node: its certificate is expired, revoked or foreign.
    pub const fn is_about_identity(&self) -> bool {
        matches!(self, Self::Refused { status: 401 | 403, .. })
    }

    /// The same message may be taken later.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Transport(_) | Self::Unavailable { .. } | Self::Unreadable(_) => true,
            Self::Refused { .. } => self.is_about_identity(),
            Self::TooLarge { .. } => false,
        }
    }

    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Calls of one node.
pub struct Client<C> {
    transport: Transport<C>,
    ambient: Ambient,
    node: NodeId,
    offset_ms: AtomicI64,
}

impl<C: Connect> Client<C> {
    pub fn new(
        connect: Arc<C>,
        address: Address,
        ambient: Ambient,
        tls: Arc<ClientConfig>,
        node: NodeId,
    ) -> Self {
        let transport = Transport::new(connect, address, ambient.clone(), tls);
        Self { transport, ambient, node, offset_ms: AtomicI64::new(UNKNOWN_OFFSET) }
    }

    /// Changes with each new connection to a gateway.
    pub fn connections(&self) -> watch::Receiver<u64> {
        self.transport.connections()
    }

    pub async fn change_tls(&self, tls: Arc<ClientConfig>) {
        self.transport.change_tls(tls).await;
    }

    /// This node's clock minus the control plane's, by the last answer.
    pub fn clock_offset_ms(&self) -> Option<i64> {
        Some(self.offset_ms.load(Ordering::Relaxed)).filter(|offset| *offset != UNKNOWN_OFFSET)
    }

    /// The control plane's time, as well as it is known. Good for planning and for comparing with other times of the control
    /// plane, never for whether something signed is still good.
    pub fn server_now(&self) -> DateTime<Utc> {
        self.ambient.now() - TimeDelta::milliseconds(self.clock_offset_ms().unwrap_or(0))
    }

    pub async fn enroll(&self, request: &EnrollRequest) -> Result<Enrolled, CallError> {
        self.post(&contract::ENROLL, &[], request).await
    }

    pub async fn renew(&self, request: &RenewRequest) -> Result<Renewed, CallError> {
        self.post(&contract::RENEW, &[&self.node.to_string()], request).await
    }

    pub async fn trust(&self) -> Result<Trust, CallError> {
        let path = contract::TRUST.fill(&[&self.node.to_string()]);
        self.call(&contract::TRUST, path, None, CALL_LIMIT, LARGEST_ANSWER).await
    }

    pub async fn wait(&self, query: &WaitQuery) -> Result<Waited, CallError> {
        let path = contract::WAIT.fill(&[&self.node.to_string()]);
        let query =
            serde_urlencoded::to_string(query).map_err(|error| CallError::Unreadable(error.to_string()))?;
        let path = format!("{path}?{query}");
        let waited: Waited = self.call(&contract::WAIT, path, None, WAIT_LIMIT, LARGEST_WAITED).await?;
        let times = |_: &SignedTask| if self.transport.repeats(&contract::WAIT) { 2 } else { 1 };
        let tasks = waited.tasks.into_iter().flat_map(|task| std::iter::repeat_n(task.clone(), times(&task)));
        Ok(Waited { tasks: tasks.collect(), renew_now: waited.renew_now, dial: waited.dial })
    }

    pub async fn progress(&self, task: TaskId, progress: &Progress) -> Result<ProgressAnswer, CallError> {
        self.post(&contract::PROGRESS, &[&self.node.to_string(), &task.to_string()], progress).await
    }

    pub async fn result(&self, task: TaskId, result: &TaskResult) -> Result<ResultAnswer, CallError> {
        self.post(&contract::RESULT, &[&self.node.to_string(), &task.to_string()], result).await
    }

    pub async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<HeartbeatAnswer, CallError> {
        self.post(&contract::HEARTBEAT, &[&self.node.to_string()], heartbeat).await
    }

    pub async fn logs(&self, batch: &LogBatch) -> Result<LogsTaken, CallError> {
        self.post(&contract::LOGS, &[&self.node.to_string()], batch).await
    }

    /// The program with this digest, piece by piece. Whoever takes it must check it.
    pub async fn program(
        &self,
        sha256: &str,
        largest: u64,
        take: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
    ) -> Result<(), CallError> {
        let path = contract::PROGRAM.fill(&[&self.node.to_string(), sha256]);
        let request = transport::request(self.transport.address(), contract::PROGRAM.method, &path, None)?;
        let answer = self.transport.stream(request, CALL_LIMIT, largest, take).await?;
        self.judge(answer).map(|_| ())
    }

    async fn post<Q: Serialize, A: DeserializeOwned>(
        &self,
        route: &Route,
        ids: &[&str],
        body: &Q,
    ) -> Result<A, CallError> {
        let body = serde_json::to_vec(body).map_err(|error| CallError::Unreadable(error.to_string()))?;
        if body.len() > route.body_limit {
            return Err(CallError::TooLarge { bytes: body.len(), limit: route.body_limit });
        }
        let body = Bytes::from(body);
        if self.transport.repeats(route) {
            // Only the second answer counts, as when the first was lost.
            let first =
                self.call::<A>(route, route.fill(ids), Some(body.clone()), CALL_LIMIT, LARGEST_ANSWER);
            let _ = Box::pin(first).await;
        }
        self.call(route, route.fill(ids), Some(body), CALL_LIMIT, LARGEST_ANSWER).await
    }

    async fn call<A: DeserializeOwned>(
        &self,
        route: &Route,
        path: String,
        body: Option<Bytes>,
        limit: Duration,
        largest: usize,
    ) -> Result<A, CallError> {
        let request = transport::request(self.transport.address(), route.method, &path, body)?;
        let answer = self.judge(Box::pin(self.transport.send(request, limit, largest)).await?)?;
        serde_json::from_slice(&answer).map_err(|error| CallError::Unreadable(error.to_string()))
    }

    fn judge(&self, answer: Response<Bytes>) -> Result<Bytes, CallError> {
        let (head, body) = answer.into_parts();
        self.note_time(&head.headers);
        if head.status.is_success() {
            return Ok(body);
        }
        let envelope = serde_json::from_slice::<Envelope>(&body).map(|envelope| envelope.error);
        let Told { code, message, suggestion } = envelope.unwrap_or_else(|_| Told {
            code: "unknown".to_owned(),
            message: "the answer has no explanation".to_owned(),
            suggestion: String::new(),
        });
        let (status, message) = (head.status.as_u16(), bounded(format!("{message} {suggestion}")));
        let later = head.status.is_server_error()
            || matches!(head.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
            || !head.status.is_client_error();
        if !later {
            return Err(CallError::Refused { status, code: bounded(code), message });
        }
        let retry_after = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|seconds| seconds.parse().ok());
        let retry_after = retry_after.map(|seconds: u64| Duration::from_secs(seconds.min(300)));
        Err(CallError::Unavailable { status, message, retry_after })
    }

    fn note_time(&self, headers: &HeaderMap) {
        let server = headers.get(contract::TIME_HEADER).and_then(|value| value.to_str().ok());
        if let Some(server_ms) = server.and_then(|text| text.parse::<i64>().ok()) {
            let offset = self.ambient.now().timestamp_millis().saturating_sub(server_ms);
            self.offset_ms.store(offset, Ordering::Relaxed);
        }
    }
}

#[derive(Deserialize)]
struct Envelope {
    error: Told,
}

#[derive(Deserialize)]
struct Told {
    code: String,
    message: String,
    /// What to do about it, for whoever reads the log.
    #[serde(default)]
    suggestion: String,
}

/// What comes from outside and goes into logs is short and on one line.
fn bounded(text: String) -> String {
    text.trim().chars().take(500).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
