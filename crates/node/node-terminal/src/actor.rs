//! The task of a session: it owns the program and its PTY, and ends them.

use std::{
    io, os::unix::process::ExitStatusExt as _, pin::pin, process::ExitStatus, sync::Arc, time::Duration,
};

use futures_util::FutureExt as _;
use node_tunnel::frame::CloseReason;
use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use rustix::{
    io::Errno,
    process::{Pid, WaitId, WaitIdOptions, waitid},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Child,
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};

use crate::{
    processes::{END_WITHIN, Processes},
    program::Program,
    session::Session,
    state::{End, Plan, State},
};

/// What is read from the PTY before streams are told.
const PIECE: usize = 16 * 1024;
/// A PTY gives at most 4 KiB at once. When it gave less than this, no more is on its way.
const FULL_READ: usize = 2 * 1024;
/// After the program has ended, output is waited for so long: background processes may have the PTY open for ever.
const QUIET: Duration = Duration::from_millis(500);
/// A PTY that no process has open may be opened by one again: then it is read again.
const REOPEN: Duration = Duration::from_millis(100);

/// When a session ends by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub expires_at: Instant,
    pub idle: Duration,
}

/// Runs a session to its end. Dropped before, the session ends as with the agent.
pub(crate) async fn run(session: Arc<Session>, program: Program, lifetime: Lifetime) {
    let published = EndPublished(session);
    let session = &published.0;
    let Program { mut processes, mut child, output, input } = program;
    let mut leader = Leader::new(&child);
    let mut terminal = Terminal {
        session,
        output,
        input,
        buffer: vec![0; PIECE],
        lifetime,
        active_at: Instant::now(),
        read_at: None,
    };
    match terminal.serve((&mut child, &mut leader), &mut processes).await {
        Outcome::Exited(status) => {
            processes.leader_reaped();
            let drained = async {
                terminal.drain().await;
                session.end(|state| state.set_end(End::Exited(status)));
            };
            // What the program left behind is ended meanwhile, however long the client takes.
            tokio::join!(drained, processes.end());
        }
        Outcome::Closed(reason) => {
            processes.look_for_login();
            session.end(|state| state.set_end(End::Closed(reason)));
            // The hangup of the terminal, as far as the kernel sends it by itself.
            drop(terminal);
            processes.end().await;
            if tokio::time::timeout(END_WITHIN, child.wait()).await.is_err() {
                tracing::error!(session_id = %session.id, "the program of a terminal session cannot be killed");
            }
        }
    }
}

/// However the task of a session ends, everybody learns that the session did.
struct EndPublished(Arc<Session>);

impl Drop for EndPublished {
    fn drop(&mut self) {
        self.0.end(|state| {
            state.set_end(End::Closed(CloseReason::Stopping));
            state.set_processes_gone();
        });
    }
}

/// The first process of a session. Its end is noticed before it is waited for.
struct Leader {
    pid: Option<Pid>,
    /// A child of this process has ended, perhaps this one.
    children: Option<Signal>,
    is_running: bool,
}

impl Leader {
    fn new(child: &Child) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { pid, children: signal(SignalKind::child()).ok(), is_running: false }
    }

    async fn has_ended(&mut self, child: &mut Child) {
        let (Some(pid), Some(children)) = (self.pid, &mut self.children) else {
            return drop(child.wait().await);
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            // Looked at anew with each signal only.
            if self.is_running && children.recv().await.is_none() {
                return drop(child.wait().await);
            }
            self.is_running = matches!(waitid(WaitId::Pid(pid), options), Ok(None) | Err(Errno::INTR));
            if !self.is_running {
                return;
            }
        }
    }
}

enum Outcome {
    Exited(i32),
    Closed(CloseReason),
}

/// The PTY of a program that runs.
struct Terminal<'a> {
    session: &'a Session,
    output: OwnedReadPty,
    input: OwnedWritePty,
    buffer: Vec<u8>,
    lifetime: Lifetime,
    /// The last input or output.
    active_at: Instant,
    /// No process had the PTY open; it is read again then.
    read_at: Option<Instant>,
}

impl Terminal<'_> {
    /// Until the program has ended, or the session is to end.
    async fn serve(
        &mut self,
        (child, leader): (&mut Child, &mut Leader),
        processes: &mut Processes,
    ) -> Outcome {
        let mut timer = pin!(tokio::time::sleep_until(self.lifetime.expires_at));
        loop {
            let now = Instant::now();
            let plan = self.session.update(|state| state.plan(now));
            if let Some(reason) = self.end_reason(&plan, now) {
                return Outcome::Closed(reason);
            }
            if let Some((columns, rows)) = plan.resize
                && let Err(error) = self.input.resize(Size::new(rows, columns))
            {
                tracing::debug!(%error, "a terminal cannot be resized");
            }
            self.read_at = self.read_at.filter(|read_at| *read_at > now);
            // Every output moves the deadline by inactivity: the timer is not set anew for that, it only comes too early.
            let wait_until = self.deadline(&plan);
            if wait_until < timer.deadline() || timer.is_elapsed() {
                timer.as_mut().reset(wait_until);
            }
            let room = plan.room.min(PIECE);
            let typed = plan.input.as_ref().map(|input| input.bytes.clone()).unwrap_or_default();
            tokio::select! {
                read = self.output.read(&mut self.buffer[..room]), if room > 0 && self.read_at.is_none() => {
                    if self.take_output(read, room) {
                        processes.look_for_login();
                    } else {
                        self.read_at = Some(Instant::now() + REOPEN);
                    }
                }
                taken = self.input.write(&typed), if !typed.is_empty() => self.take_input(taken, &plan),
                () = leader.has_ended(child) => {
                    // The kernel says where it was until it is waited for.
                    processes.look_for_login();
                    return Outcome::Exited(exit_code(child.wait().await));
                }
                () = &mut timer => {}
                () = self.session.woken() => {}
            }
        }
    }

    /// Reads what the program left in the PTY, as fast as there is room for it.
    async fn drain(&mut self) {
        let mut quiet_since = Instant::now();
        loop {
            let now = Instant::now();
            self.session.take_input(State::discard_input);
            let plan = self.session.update(|state| state.plan(now));
            let room = plan.room.min(PIECE);
            let mut wait_until = self.deadline(&plan);
            if room == 0 {
                quiet_since = now;
            } else {
                wait_until = wait_until.min(quiet_since + QUIET);
            }
            if quiet_since + QUIET <= now || self.end_reason(&plan, now).is_some() {
                return;
            }
            tokio::select! {
                read = self.output.read(&mut self.buffer[..room]), if room > 0 => {
                    if !self.take_output(read, room) {
                        return;
                    }
                    quiet_since = Instant::now();
                }
                () = tokio::time::sleep_until(wait_until) => {}
                () = self.session.woken() => {}
            }
        }
    }

    fn end_reason(&self, plan: &Plan, now: Instant) -> Option<CloseReason> {
        plan.end
            .or_else(|| (self.lifetime.expires_at <= now).then_some(CloseReason::Expired))
            .or_else(|| (self.active_at + self.lifetime.idle <= now).then_some(CloseReason::Idle))
    }

    /// When the plan is made again if nothing happens.
    fn deadline(&self, plan: &Plan) -> Instant {
        let ends_at = self.lifetime.expires_at.min(self.active_at + self.lifetime.idle);
        [plan.until, self.read_at].into_iter().flatten().fold(ends_at, Instant::min)
    }

    /// Takes what was read, and what else is there. Answers whether there was any: none if no process has the PTY open.
    fn take_output(&mut self, read: io::Result<usize>, room: usize) -> bool {
        let Ok(mut count @ 1..) = read else { return false };
        let mut last = count;
        while last >= FULL_READ && count < room {
            match self.output.read(&mut self.buffer[count..room]).now_or_never() {
                Some(Ok(more @ 1..)) => (count, last) = (count + more, more),
                // Whether it is an end or an error, the next read finds it again.
                _ => break,
            }
        }
        self.session.publish(&self.buffer[..count]);
        self.active_at = Instant::now();
        true
    }

    fn take_input(&mut self, taken: io::Result<usize>, plan: &Plan) {
        let Some(input) = &plan.input else { return };
        self.session.take_input(|state| match taken {
            Ok(count) => state.input_taken(input, count),
            Err(_) => state.discard_input(),
        });
        self.active_at = Instant::now();
    }
}

fn exit_code(status: io::Result<ExitStatus>) -> i32 {
    const UNKNOWN: i32 = -1;
    match status {
        Ok(status) => status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(UNKNOWN),
        Err(error) => {
            tracing::error!(%error, "a program cannot be waited for");
            UNKNOWN
        }
    }
}
