//! One client, attached to one session.

use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, close_code};
use chrono::{DateTime, TimeDelta, Utc};
use endpoint::SignIn;
use fleet::api::ReachError;
use futures_util::FutureExt as _;
use kernel::{
    ids::{AllocationId, NodeId, ProjectId, TerminalSessionId},
    policy::TerminalRecording,
    principal::PrincipalId,
};
use node_proto::{
    contract::TunnelClass,
    grant::{Grant, Owner, PtyAccess, Target},
};
use node_tunnel::OpenError;
use tokio::{sync::oneshot, time::Instant};

use super::{
    Gateway, NODE_TOO_OLD,
    admit::{Admitted, NOT_ACCEPTED, close},
    farewell::End,
    meter::Meter,
    pump::Attachment,
    revocation::{Pause, in_words, refusal_code},
    storing::{ResumeError, Storing},
    tape::{TAMPERED, Tape, UNAVAILABLE},
};
use crate::{
    model::{
        message::{ClientMessage, ServerMessage},
        recording::{RecordingOrder, Sealed},
        session::Access,
    },
    service::{
        recordings::{NewRecording, tampering_note},
        tokens::TOKEN_GOOD_FOR,
        upkeep::{session_end_ask, session_note_attached, session_note_end},
    },
};

/// The node ends a session whose time to live is over, and says so; a gateway that ended it before would not learn its last output.
const AFTER_NODE: Duration = Duration::from_secs(5);
/// A node that is not connected dials and opens a stream within this time, or is not reached.
const OPENED_WITHIN: Duration = Duration::from_secs(20);
/// A client says what it has within this time.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);
/// An attachment is noted before anything is shown: a session that somebody uses is never taken for one that nobody used.
const NOTE_AGAIN_AFTER: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1600),
    Duration::from_millis(3000),
];
const NOT_NOTED: &str = "the control plane cannot note the terminal now; attach again in a moment";

/// Who is attached, and where.
struct Attached {
    sign_in: SignIn,
    principal: PrincipalId,
    project: ProjectId,
    allocation: AllocationId,
    session: TerminalSessionId,
    node: NodeId,
    access: Access,
    ends_at: Instant,
}

/// Tells the client why there is no terminal.
async fn refuse(mut socket: WebSocket, code: &'static str, message: String, retryable: bool) {
    metrics::counter!("terminal_attachments_refused_total", "code" => code).increment(1);
    let error = ServerMessage::SessionError { code, message, retryable };
    if socket.send(Message::Text(error.text().into())).await.is_ok() {
        close(&mut socket, if retryable { close_code::AGAIN } else { close_code::NORMAL }, code).await;
    }
}

impl Gateway {
    pub(super) async fn attach(&self, mut socket: WebSocket, admitted: Admitted, session: TerminalSessionId) {
        let began = Instant::now();
        let Admitted { consumed, token } = admitted;
        let Some(Sealed { grant, recording }) = Sealed::open(&token, &consumed.sealed_grant) else {
            return close(&mut socket, NOT_ACCEPTED, "the token was not accepted").await;
        };
        // Not verified here, and not believed: the node verifies it.
        let described = serde_json::from_slice::<Grant>(&grant.payload.0).ok();
        // What stands in the row and what is granted must be the same, or the wrong thing would be looked at later.
        let place = (consumed.allocation_id, session);
        let Some(Described { node, access, ttl, actor, minted_at }) =
            described.and_then(|grant| describe(grant, place))
        else {
            return close(&mut socket, NOT_ACCEPTED, "the token was not accepted").await;
        };
        let path = (consumed.project_id, consumed.allocation_id);
        let principal = match self.allowed(&self.0.terminal_endpoint, consumed.sign_in, path).await {
            Ok(principal) => principal,
            Err(failure) => {
                let (code, retryable) = refusal_code(&failure);
                return refuse(socket, code, in_words(&failure), retryable).await;
            }
        };
        if actor != principal.to_string() {
            return close(&mut socket, NOT_ACCEPTED, "the token was not accepted").await;
        }
        let Some((sequence, columns, rows)) = first_message(&mut socket).await else {
            return refuse(socket, "protocol", "the first message must be attach".to_owned(), false).await;
        };
        let stream = match self.0.tunnels.open(node, TunnelClass::Interactive, &grant).await {
            Ok(stream) => stream,
            Err(error) => {
                let (code, retryable) = refusal(&error);
                if code == "session_ended" {
                    self.note(session, "lost", None).await;
                }
                return refuse(socket, code, error.to_string(), retryable).await;
            }
        };
        let attached = Attached {
            sign_in: consumed.sign_in,
            principal,
            project: consumed.project_id,
            allocation: consumed.allocation_id,
            session,
            node,
            access,
            ends_at: overdue_at(Instant::now(), ttl),
        };
        // After the node has let this client in: who is refused there leaves the recording to whoever writes it.
        let recorded = match self.recording(&attached, &recording).await {
            Ok(recorded) => recorded,
            Err((code, retryable)) => return refuse(socket, code, UNAVAILABLE.to_owned(), retryable).await,
        };
        let starting = async {
            match recorded {
                Some(recorded) => Box::pin(Tape::start(recorded, sequence, (columns, rows))).await.map(Some),
                None => Ok(None),
            }
        };
        // Both wait for a disk; neither needs the other.
        let (tape, is_noted) = tokio::join!(starting, self.note_attached(&attached));
        let tape = match tape {
            Ok(tape) => tape,
            Err(error) => {
                let (code, message, retryable) = self.recording_refused(&attached, error).await;
                return refuse(socket, code, message.to_owned(), retryable).await;
            }
        };
        if !is_noted {
            return refuse(socket, "unavailable", NOT_NOTED.to_owned(), true).await;
        }
        let from = match &tape {
            // From the end of what is recorded, when the client has more: nothing is to be missing.
            Some(tape) => sequence.min(tape.next_sequence().await),
            None => sequence,
        };
        let stream_began = Attachment::start(stream, from, (columns, rows)).await;
        let Ok(attachment) = stream_began else {
            return refuse(socket, "tunnel_lost", "the node broke the stream off".to_owned(), true).await;
        };
        metrics::histogram!("terminal_connect_seconds").record(began.elapsed().as_secs_f64());
        tracing::info!(session_id = %attached.session, node_id = %attached.node, "a terminal is attached");
        let meter = Meter::new(access, self.0.terminals.db.ambient().now() - minted_at);
        let ready = (attached.session, attached.access);
        let (pause, (tell, told)) = (Pause::new(), oneshot::channel());
        let running = attachment.run(socket, ready, (tape, meter), told.map(Result::unwrap_or_default));
        let allowed = || self.allowed(&self.0.terminal_endpoint, attached.sign_in, path);
        let mut lost_access = false;
        // Beside it: what is paused cannot ask whether it may go on.
        let must_leave = async {
            let must_end = self.must_end(&pause, attached.principal, attached.ends_at, allowed).await;
            lost_access = must_end.lost_access;
            let _ = tell.send((must_end.code, must_end.message, must_end.retryable));
            std::future::pending::<End>().await
        };
        let end = tokio::select! {
            end = pause.gate(running) => end,
            end = must_leave => end,
        };
        if lost_access {
            // What runs there is not left running for somebody who may not come back.
            self.end_session(attached.session).await;
        }
        if let End::Session { reason, exit_status } = end {
            self.note(session, reason, exit_status).await;
        }
    }

    /// The recording that this attachment writes, if it does: whoever types is recorded, if the token says so.
    async fn recording(
        &self,
        attached: &Attached,
        order: &RecordingOrder,
    ) -> Result<Option<Storing>, (&'static str, bool)> {
        if order.mode == TerminalRecording::Off || attached.access == Access::Watch {
            return Ok(None);
        }
        let terminals = &self.0.terminals;
        let now = terminals.db.ambient().now();
        let lasts = TimeDelta::from_std(attached.ends_at.saturating_duration_since(Instant::now()));
        let kept = lasts.unwrap_or_default() + TimeDelta::days(order.retention_days);
        let new = NewRecording {
            session: attached.session,
            org: order.org_id,
            project: attached.project,
            allocation: attached.allocation,
            principal: attached.principal,
            mode: order.mode,
            started_at: now,
            expires_at: now + kept,
        };
        match Tape::open(terminals, &new).await {
            Ok(Some(opened)) => Ok(Some(opened)),
            Ok(None) => Err(("session_ended", false)),
            Err(failure) => {
                tracing::warn!(session_id = %attached.session, error = ?failure, "a recording could not be opened");
                Err(("recording_unavailable", true))
            }
        }
    }

    /// What a client is told whose session cannot be recorded on.
    async fn recording_refused(
        &self,
        attached: &Attached,
        error: ResumeError,
    ) -> (&'static str, &'static str, bool) {
        let session = attached.session;
        match error {
            ResumeError::Closed => ("session_ended", "the session has ended", false),
            ResumeError::Tampered(fault) => {
                if let Err(failure) = tampering_note(&self.0.terminals, session, &fault).await {
                    tracing::warn!(session_id = %session, error = ?failure, "what was found changed could not be noted");
                }
                ("recording_tampered", TAMPERED, false)
            }
            ResumeError::Unavailable(failure) => {
                metrics::counter!("terminal_recording_failures_total", "reason" => "start").increment(1);
                tracing::warn!(session_id = %session, error = ?failure, "a recording could not be started");
                ("recording_unavailable", UNAVAILABLE, true)
            }
        }
    }

    async fn end_session(&self, session: TerminalSessionId) {
        if let Err(failure) = session_end_ask(&self.0.terminals, session).await {
            tracing::warn!(session_id = %session, error = ?failure, "the end of a terminal session could not be asked for");
        }
    }

    /// False when it cannot be noted, however often it is tried.
    async fn note_attached(&self, attached: &Attached) -> bool {
        let mut waits = NOTE_AGAIN_AFTER.into_iter();
        while let Err(failure) = session_note_attached(&self.0.terminals, attached.session).await {
            tracing::warn!(session_id = %attached.session, error = ?failure, "an attachment could not be noted");
            let Some(wait) = waits.next() else { return false };
            tokio::time::sleep(wait).await;
        }
        true
    }

    async fn note(&self, session: TerminalSessionId, reason: &str, exit_status: Option<i32>) {
        tracing::info!(session_id = %session, reason, "a terminal session has ended");
        if let Err(failure) = session_note_end(&self.0.terminals, session, reason, exit_status).await {
            tracing::warn!(error = ?failure, "the end of a terminal session could not be noted");
        }
    }
}

/// When a node should have ended a session whose stream was open at `opened`, and `ttl` was left of its time when the token was
/// minted. The node counts from when it started the session: with the first token, which may have waited for its use, its
/// client for the first message, and the node for its dial, while the control plane counts from when it minted that token.
fn overdue_at(opened: Instant, ttl: Duration) -> Instant {
    let waited = TOKEN_GOOD_FOR.to_std().unwrap_or_default() + FIRST_MESSAGE + OPENED_WITHIN;
    opened + ttl + waited + AFTER_NODE
}

/// What the gateway needs of a grant to carry it.
struct Described {
    node: NodeId,
    access: Access,
    ttl: Duration,
    actor: String,
    minted_at: DateTime<Utc>,
}

/// Nothing when it is a grant for something else.
fn describe(grant: Grant, (allocation_id, session): (AllocationId, TerminalSessionId)) -> Option<Described> {
    let Target::Pty(target) = &grant.target else { return None };
    if grant.owner != (Owner::Allocation { allocation_id }) || target.session_id != session {
        return None;
    }
    let access = match target.access {
        PtyAccess::Write => Access::Write,
        PtyAccess::TakeOver => Access::TakeOver,
        PtyAccess::Watch => Access::Watch,
        PtyAccess::End => return None,
    };
    let ttl = Duration::from_secs(u64::from(target.ttl_seconds));
    Some(Described { node: grant.node_id, access, ttl, actor: grant.actor, minted_at: grant.issued_at })
}

async fn first_message(socket: &mut WebSocket) -> Option<(u64, u16, u16)> {
    let message = tokio::time::timeout(FIRST_MESSAGE, socket.recv()).await.ok()??.ok()?;
    match serde_json::from_str(message.to_text().ok()?).ok()? {
        ClientMessage::Attach { sequence, columns, rows } => Some((sequence, columns, rows)),
        _ => None,
    }
}

/// What a client is told of a node that does not open a stream, and whether a new token may help.
fn refusal(error: &ReachError) -> (&'static str, bool) {
    match error {
        ReachError::TooOld { .. } => (NODE_TOO_OLD, false),
        ReachError::NotConnected | ReachError::NotAsked => ("node_unreachable", true),
        ReachError::Open(OpenError::Refused(code)) => match code.as_str() {
            "writer_attached" => ("writer_attached", false),
            "session_ended" => ("session_ended", false),
            // Whoever starts it is on the way.
            "no_such_session" | "session_starting" => ("session_starting", true),
            "start_failed" => ("start_failed", false),
            "stopping" | "unavailable" | "too_slow" => ("node_unavailable", true),
            "not_your_session" => ("not_your_session", false),
            "too_many_sessions" => ("too_many_sessions", false),
            "too_many_attached" => ("too_many_attached", false),
            "no_shell" => ("no_shell", false),
            "no_such_owner" => ("machine_not_ready", true),
            "not_supported" => ("not_supported", false),
            // A grant that came too late or from a signer that the node does not know yet.
            _ => ("grant_refused", true),
        },
        ReachError::Open(_) => ("tunnel_lost", true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_waits_for_the_end_that_the_node_enforces_however_late_the_session_started_there() {
        let (hour, ttl) = (Duration::from_secs(3600), Duration::from_secs(4 * 3600));
        let minted = Instant::now();
        // The node starts the session as late as it can, and whoever attaches again an hour later does at once.
        let started = minted + TOKEN_GOOD_FOR.to_std().unwrap() + FIRST_MESSAGE + OPENED_WITHIN;
        let (ends, attached_again) = (started + ttl, minted + hour);
        for (opened, left) in [(started, ttl), (attached_again, ttl - hour)] {
            let overdue = overdue_at(opened, left);
            assert!(overdue >= ends + AFTER_NODE && overdue < ends + Duration::from_secs(180));
        }
    }
}
