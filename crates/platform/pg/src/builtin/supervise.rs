//! Starts the server, watches it, starts it again when it ends by itself, and stops it.
//!
//! One task owns the child process. It ends when it is told to stop, or when the handle that could tell it is
//! dropped; if the whole runtime goes first, dropping the child still sends it the signal for a fast shutdown.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use nix::fcntl::Flock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::error::BuiltinError;
use super::log::ServerLog;
use super::user::RunAs;
use super::{PORT, SUPERUSER, ServerState, exec, stale};

const RESTARTS_MAX: usize = 5;
const RESTARTS_WINDOW: Duration = Duration::from_secs(60);
const PROBE_LIMIT: Duration = Duration::from_secs(2);
const PROBE_PAUSE: Duration = Duration::from_millis(20);
const BLOCKED_PAUSE: Duration = Duration::from_millis(200);
/// Fast shutdown with a checkpoint, then at once, then by force.
const STOP_STEPS: [(Signal, Duration); 3] = [
    (Signal::SIGINT, Duration::from_secs(30)),
    (Signal::SIGQUIT, Duration::from_secs(10)),
    (Signal::SIGKILL, Duration::from_secs(5)),
];

/// All that is needed to start the server again.
pub(super) struct Plan {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) user: RunAs,
    pub(super) pgdata: PathBuf,
    pub(super) socket_dir: PathBuf,
    pub(super) start_timeout: Duration,
    /// Held until the server has ended.
    #[allow(dead_code)] // kept for its effect
    pub(super) lock: Flock<File>,
}

/// The running server process.
pub(super) struct Server {
    child: Child,
    log: ServerLog,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(Signal::SIGINT);
    }
}

enum Started {
    Ready,
    Exited(ExitStatus),
    Late,
    Stopped,
}

impl Server {
    fn spawn(plan: &Plan) -> Result<Server, BuiltinError> {
        let mut command = exec::command(&plan.program, &plan.user);
        let spawned = command.args(&plan.args).spawn();
        let mut child =
            spawned.map_err(|source| BuiltinError::Exec { program: plan.program.clone(), source })?;
        let log = ServerLog::follow(child.stderr.take());
        Ok(Server { child, log })
    }

    /// Signals the process unless it has been reaped, after which its id could be another's.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            // It may have ended a moment ago; whoever waits for it sees that.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    fn pid(&self) -> Option<i32> {
        self.child.id().and_then(|pid| i32::try_from(pid).ok())
    }

    async fn exited(&mut self) -> ExitStatus {
        // Waiting for our own child does not fail; if it ever did, the child would be gone all the same.
        self.child.wait().await.unwrap_or_default()
    }

    async fn until_ready(
        &mut self,
        plan: &Plan,
        deadline: Instant,
        stop: &mut watch::Receiver<bool>,
    ) -> Started {
        tokio::select! {
            biased;
            status = self.exited() => Started::Exited(status),
            () = wait_for_stop(stop) => Started::Stopped,
            () = answers(&plan.socket_dir) => Started::Ready,
            () = sleep_until(deadline) => Started::Late,
        }
    }

    async fn shutdown(mut self) -> Result<(), BuiltinError> {
        let Some(pid) = self.pid() else { return Ok(()) };
        for (signal, limit) in STOP_STEPS {
            self.signal(signal);
            if timeout(limit, self.exited()).await.is_ok() {
                tracing::info!(pid, %signal, "built-in PostgreSQL has stopped");
                return if signal == Signal::SIGKILL { Err(BuiltinError::Killed { pid }) } else { Ok(()) };
            }
            tracing::warn!(pid, %signal, seconds = limit.as_secs(), "built-in PostgreSQL does not stop");
        }
        Err(BuiltinError::Killed { pid })
    }
}

async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    // A dropped handle says stop as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Returns when the server accepts a connection.
async fn answers(socket_dir: &Path) {
    let options = PgConnectOptions::new_without_pgpass()
        .socket(socket_dir)
        .port(PORT)
        .username(SUPERUSER)
        .database("postgres")
        .ssl_mode(PgSslMode::Disable);
    loop {
        if let Ok(Ok(connection)) = timeout(PROBE_LIMIT, Box::pin(PgConnection::connect_with(&options))).await
        {
            // Answered; how the goodbye goes does not matter.
            let _ = timeout(PROBE_LIMIT, connection.close()).await;
            return;
        }
        sleep(PROBE_PAUSE).await;
    }
}

/// Starts the server and waits until it answers.
pub(super) async fn bring_up(plan: &Plan, stop: &mut watch::Receiver<bool>) -> Result<Server, BuiltinError> {
    let deadline = Instant::now() + plan.start_timeout;
    loop {
        stale::clear(&plan.pgdata, &plan.socket_dir, plan.user.uid()).await?;
        let mut server = Server::spawn(plan)?;
        match server.until_ready(plan, deadline, stop).await {
            Started::Ready => return Ok(server),
            Started::Stopped => {
                server.shutdown().await?;
                return Err(BuiltinError::Stopped);
            }
            Started::Late => {
                let log = server.log.tail();
                server.shutdown().await?;
                return Err(BuiltinError::NotReady { seconds: plan.start_timeout.as_secs(), log });
            }
            Started::Exited(status) => {
                let log = server.log.last_words().await;
                if !is_blocked_by_leftovers(&log) || Instant::now() >= deadline {
                    return Err(BuiltinError::Exited { status: status.to_string(), log });
                }
                sleep(BLOCKED_PAUSE).await;
            }
        }
    }
}

/// After kill -9 of the server, its backends end by themselves, but a busy one takes a moment, and until then
/// PostgreSQL rightly refuses to start on the same cluster.
fn is_blocked_by_leftovers(log: &str) -> bool {
    log.contains("pre-existing shared memory block") || log.contains("lock file \"postmaster.pid\"")
}

/// Keeps the server running until told to stop.
pub(super) async fn supervise(
    plan: Plan,
    mut server: Server,
    state: watch::Sender<ServerState>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), BuiltinError> {
    let mut budget = Budget::default();
    loop {
        let status = tokio::select! {
            biased;
            () = wait_for_stop(&mut stop) => return server.shutdown().await,
            status = server.exited() => status,
        };
        let mut cause = format!("PostgreSQL ended by itself ({status})");
        tracing::error!(%status, log = server.log.tail(), "built-in PostgreSQL ended by itself; restarting it");
        state.send_replace(ServerState::Restarting);
        server = loop {
            let Some(pause) = budget.spend(Instant::now()) else {
                let seconds = RESTARTS_WINDOW.as_secs();
                let why = format!("gave up after {RESTARTS_MAX} restarts within {seconds} s: {cause}");
                tracing::error!(why, "built-in PostgreSQL has failed");
                state.send_replace(ServerState::Failed(why));
                wait_for_stop(&mut stop).await;
                return Ok(());
            };
            tokio::select! {
                () = wait_for_stop(&mut stop) => return Ok(()),
                () = sleep(pause) => {}
            }
            match bring_up(&plan, &mut stop).await {
                Ok(server) => break server,
                Err(BuiltinError::Stopped) => return Ok(()),
                Err(error) => {
                    tracing::error!(%error, "built-in PostgreSQL did not restart");
                    cause = error.to_string();
                }
            }
        };
        tracing::info!("built-in PostgreSQL is up again");
        state.send_replace(ServerState::Running);
    }
}

/// A few restarts within a window of time, the first at once, later ones after growing pauses.
#[derive(Debug, Default)]
struct Budget {
    recent: VecDeque<Instant>,
}

impl Budget {
    /// The pause before the next restart, or `None` when there have been too many.
    fn spend(&mut self, now: Instant) -> Option<Duration> {
        while self.recent.front().is_some_and(|then| now.duration_since(*then) >= RESTARTS_WINDOW) {
            self.recent.pop_front();
        }
        let pause = match self.recent.len() {
            0 => Duration::ZERO,
            spent if spent < RESTARTS_MAX => Duration::from_millis(100) * (1 << spent),
            _ => return None,
        };
        self.recent.push_back(now);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_bounded_within_the_window_and_allowed_again_after_it() {
        let mut budget = Budget::default();
        let start = Instant::now();
        assert_eq!(budget.spend(start), Some(Duration::ZERO));
        for _ in 1..RESTARTS_MAX {
            assert!(budget.spend(start).is_some());
        }
        assert_eq!(budget.spend(start), None);
        assert_eq!(budget.spend(start + RESTARTS_WINDOW), Some(Duration::ZERO));
    }
}
