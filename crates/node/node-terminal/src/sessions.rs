//! The sessions of a node, and the streams to them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kernel::ids::TerminalSessionId;
use node_proto::{
    contract::TerminalSessionReport,
    grant::{Grant, Owner, PtyAccess, Target},
};
use node_tunnel::{Attached, Handler, Refusal, frame::CloseReason};
use tokio_util::task::TaskTracker;

use crate::{
    Limits, Shells,
    attach::{Attachment, Ending, STREAMS_END_WITHIN},
    processes::{END_WITHIN, marker_value},
    program::Program,
    registry::{Admitted, Registry},
    session::Session,
};

/// All terminal sessions of a node. Dropped, they are killed.
pub struct Sessions {
    shells: Arc<dyn Shells>,
    registry: Arc<Registry>,
    grace: Duration,
    /// Counts streams.
    streams: TaskTracker,
}

/// A session that runs, or whose output is kept.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    pub session_id: TerminalSessionId,
    pub owner: Owner,
    pub actor: String,
    /// Bytes of output that were read from the program.
    pub produced: u64,
    pub attached: usize,
    pub has_writer: bool,
    /// It has ended, and no process of it is left.
    pub ended: bool,
}

impl Sessions {
    pub fn new(shells: Arc<dyn Shells>, limits: Limits) -> Arc<Self> {
        let streams = TaskTracker::new();
        Arc::new(Self { shells, registry: Registry::new(limits), grace: limits.grace, streams })
    }

    /// How many sessions have processes.
    pub fn count(&self) -> usize {
        self.registry.count()
    }

    pub fn list(&self) -> Vec<SessionStatus> {
        let status = |session: &Arc<Session>| {
            session.read(|state| SessionStatus {
                session_id: session.id,
                owner: session.owner,
                actor: session.actor.clone(),
                produced: state.produced(),
                attached: state.attached(),
                has_writer: state.has_writer(),
                ended: state.has_no_processes(),
            })
        };
        self.registry.sessions().iter().map(status).collect()
    }

    /// What the node reports of them.
    pub fn reports(&self) -> Vec<TerminalSessionReport> {
        self.registry.reports()
    }

    /// Ends all sessions of an owner, and forgets their output. Returns when no process of them is left.
    pub async fn end_owner(&self, owner: Owner) {
        self.registry.cancel_starting(owner);
        let mut sessions = self.registry.sessions();
        sessions.retain(|session| session.owner == owner);
        end_all(&sessions, CloseReason::Ended).await;
        sessions.iter().for_each(|session| self.registry.forget(session.id));
    }

    /// Ends all sessions. Returns when no process of them is left and whoever was attached has been told, or does not
    /// listen.
    pub async fn stop(&self) {
        self.registry.stop();
        end_all(&self.registry.sessions(), CloseReason::Stopping).await;
        self.streams.close();
        let _ = tokio::time::timeout(STREAMS_END_WITHIN, self.streams.wait()).await;
    }

    async fn session(&self, grant: &Grant) -> Result<Box<dyn Attached>, Refusal> {
        let Target::Pty(target) = &grant.target else { return Err(Refusal("not_supported")) };
        let session = match self.registry.admit(grant, target)? {
            Admitted::Session(session) => session,
            Admitted::New(reservation) => {
                let shell = self.shells.shell(grant).await?;
                let (session_id, program) = (target.session_id, shell.program.display().to_string());
                let started = Program::start(shell, marker_value(grant.node_id, session_id)).await;
                let started = started.map_err(|error| {
                    tracing::error!(%session_id, program, %error, "a terminal session cannot be started");
                    Refusal("start_failed")
                })?;
                tracing::info!(%session_id, program, actor = grant.actor, "a terminal session is started");
                reservation.start(grant, target, started)?
            }
        };
        let open = self.streams.token();
        if target.access == PtyAccess::End {
            session.want_end(CloseReason::Ended);
            return Ok(Box::new(Ending { session, open }));
        }
        Ok(Box::new(Attachment {
            seat: session.join(target.access, target.recorded)?,
            grace: self.grace,
            open,
        }))
    }
}

#[async_trait]
impl Handler for Sessions {
    async fn attach(&self, grant: Grant) -> Result<Box<dyn Attached>, Refusal> {
        self.session(&grant).await
    }
}

async fn end_all(sessions: &[Arc<Session>], reason: CloseReason) {
    sessions.iter().for_each(|session| session.want_end(reason));
    let all_gone = async {
        for session in sessions {
            session.wait_until(|state| state.has_no_processes()).await;
        }
    };
    if tokio::time::timeout(END_WITHIN, all_gone).await.is_err() {
        tracing::error!("terminal sessions did not end in time");
    }
}
