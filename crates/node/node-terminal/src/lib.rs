//! Terminal sessions on a node. A session is one program on a pseudo-terminal (PTY); it outlives whoever is attached to it.
//!
//! **How it works.** [`Sessions`] is the [`node_tunnel::Handler`] of PTY grants. A grant names a session; the first writer
//! starts it ([`Shells`] says what is run), later ones attach to it. Each session is a task which owns the PTY and the program,
//! and a ring with the last bytes of the output, each with its number. Each stream reads the ring from the number that
//! its client asked for. The frames are those of [`node_tunnel::frame`].
//!
//! **Output.** One stream writes (types, resizes); others watch. While a writer is attached, and for a grace period after its
//! stream broke, no byte is overwritten that the writer has not acknowledged: the PTY is read only as fast as acknowledgements
//! come, so a client that stops reading stops the program, and one that re-attaches within the grace period misses nothing and
//! gets nothing twice. Where a gateway records, what a client has received makes room before it is acknowledged, which is when
//! it is stored; the ring holds more than the scrollback for that. After the grace period, or after a `Detach`, the program
//! runs on and the oldest bytes are overwritten; the first `Ack` to the next client says where its bytes begin. Watchers hold
//! up nobody: one that fell behind is sent an `Ack` with the number at which it goes on. In a session whose grant says that it
//! is recorded, watchers are sent only what the gateway of somebody who asked to write has recorded: nobody sees what is not.
//!
//! **Input.** The node never stops reading frames. Typed bytes are queued; their share of the HTTP/2 window is released after
//! the PTY took them, that of all other frames at once. So the queue is bounded by the window (64 KiB) and a sender learns from
//! its capacity what was consumed. Two rules for senders: a `Data` frame holds at most [`INPUT_FRAME`] bytes, and at most
//! [`INPUT_IN_FLIGHT`] typed bytes are on their way without having been consumed, so that `Ack` and `Resize` always find room in
//! the window. A sender that breaks the second rule can get its own acknowledgement stuck behind input that the program does not
//! read because it waits for that acknowledgement. The node resolves this itself: while the window is full of typed bytes, all
//! output that was sent counts as acknowledged. Then nothing stops, but a stream which breaks at that moment may resume later
//! than where its client was, and is told so.
//!
//! **What it promises.** A session ends with its program, by its time to live, by inactivity, by a grant for its end, or with
//! the agent, and no process of it is left afterwards: not background jobs, not what ignores a hangup, not what made a session
//! of its own and cleared its environment. Each session has a control group (cgroup v2), which nobody but root can leave; an
//! agent that was killed leaves it to the next one ([`end_leftovers`]). Where the agent cannot make control groups, what makes
//! a session of its own, clears its environment and has no parent any more escapes, unless [`Shells`] run it in a PID
//! namespace. What other services of the machine start for a user or take over from one (`systemd-run --user`, `cron`, `at`) is
//! no part of a session: it ends with the account. The output and the status of an ended session can be read for the grace period; the id
//! is never started again. All counts, buffers and waits are bounded. Bytes are not interpreted.

mod actor;
mod attach;
mod cgroup;
mod processes;
mod program;
mod registry;
mod ring;
mod session;
mod sessions;
mod state;

use std::time::Duration;

pub use attach::{INPUT_FRAME, INPUT_IN_FLIGHT};
pub use processes::{MARKER, end_leftovers};
pub use program::{Shell, Shells};
pub use sessions::{SessionStatus, Sessions};

/// Bounds of the sessions of a node.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sessions with processes, all together and per owner.
    pub sessions: usize,
    pub sessions_per_owner: usize,
    /// Bytes of output that a session keeps for whoever attaches.
    pub scrollback: usize,
    /// Bytes that it keeps at most, with those that its writer has not acknowledged: as much as can be on its way while a
    /// recording is stored.
    pub ring: usize,
    /// The longest life of a session. The grant may ask for less.
    pub ttl: Duration,
    /// The longest time with neither input nor output. The grant may ask for less.
    pub idle: Duration,
    /// For so long a session whose writer was cut off keeps what is not acknowledged, and an ended one its output and status.
    pub grace: Duration,
    /// Writer and watchers of one session.
    pub attached_per_session: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // The most that a policy of the control plane can allow.
        const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
        Self {
            sessions: 512,
            sessions_per_owner: 64,
            scrollback: 256 * 1024,
            ring: 1024 * 1024,
            ttl: WEEK,
            idle: WEEK,
            grace: Duration::from_secs(120),
            attached_per_session: 8,
        }
    }
}
