//! Terminals into simulated nodes: real shells, confined ([`sandbox`]), on machines that do not exist.
//!
//! What a shell sees of its machine is made up: the name, the user, the GPUs of its allocation ([`smi`]). Its home lasts as
//! long as the allocation ([`rooms`]). Sessions are the agent's and end with it; the home is the machine's and does not. As
//! long as nobody opens a terminal there are neither sessions nor directories.

mod rooms;
mod sandbox;
mod smi;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use kernel::ids::{AllocationId, NodeId};
use node_agent::{
    drivers::simulated::{Machine, Profile},
    logs::LogStreams,
    session::{Log, Streams},
    terminals::{NO_SHELL, NO_SUCH_OWNER, NOT_SUPPORTED, Terminals, UNAVAILABLE},
};
use node_proto::{
    contract::TerminalSessionReport,
    grant::{Grant, Owner, StreamKind},
};
use node_terminal::{Shell, Shells};
use node_tunnel::{Attached, Handler, Refusal};

pub use self::sandbox::{Confinement, Sandbox};
use self::{rooms::Facts, sandbox::environment};

/// The user of an owner whose name is not known.
const SOMEBODY: &str = "user";

/// The shells of one simulated machine. They outlive its agent.
pub struct SimShells {
    node: NodeId,
    machine: Machine,
    sandbox: Arc<Sandbox>,
}

impl SimShells {
    pub fn new(node: NodeId, machine: Machine, sandbox: Arc<Sandbox>) -> Self {
        Self { node, machine, sandbox }
    }

    fn room_name(&self, owner: &str) -> String {
        format!("{}.{owner}", self.node)
    }

    fn facts(&self, owner: &str, uid: u32) -> Option<Facts> {
        let tenant = self.machine.tenant(owner)?;
        let programs = match self.machine.profile() {
            Profile::H200x8 | Profile::H100x8 => vec![("nvidia-smi", smi::script(&tenant.gpus))],
            Profile::Mi300xX8 | Profile::Cpu => Vec::new(),
        };
        let hostname = self.machine.hostname().to_owned();
        Some(Facts { username: plain_name(tenant.username), hostname, uid, programs })
    }

    /// An owner leaves: its home goes.
    async fn remove_home(&self, owner: &str) {
        let Some(ready) = self.sandbox.ready_already() else { return };
        let name = self.room_name(owner);
        let removed = tokio::task::spawn_blocking(move || ready.rooms.remove(&name)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(owner, %error, "the home of an allocation cannot be removed");
        }
    }
}

/// It becomes part of paths.
fn plain_name(name: String) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    let is_usable = (1..=32).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('-');
    if is_usable { name } else { SOMEBODY.to_owned() }
}

#[async_trait]
impl Shells for SimShells {
    async fn shell(&self, grant: &Grant) -> Result<Shell, Refusal> {
        let Owner::Allocation { allocation_id } = grant.owner else { return Err(NOT_SUPPORTED) };
        let owner = allocation_id.to_string();
        if self.machine.tenant(&owner).is_none() {
            return Err(NO_SUCH_OWNER);
        }
        let ready = self.sandbox.ready().await.ok_or(NO_SHELL)?;
        let facts = self.facts(&owner, ready.uid()).ok_or(NO_SUCH_OWNER)?;
        let env = environment(&facts.username);
        let terminal_owner = ready.outside_uid();
        let name = self.room_name(&owner);
        let prepare = move || {
            let room = ready.rooms.prepare(&name, &facts)?;
            Ok::<_, std::io::Error>(ready.shell(&room, &facts))
        };
        let prepared = tokio::task::spawn_blocking(prepare).await.map_err(std::io::Error::other);
        let (program, args) = prepared.flatten().map_err(|error| {
            tracing::warn!(owner, %error, "the home of an allocation cannot be made");
            UNAVAILABLE
        })?;
        Ok(Shell { program, args, env, cwd: "/".into(), terminal_owner })
    }
}

/// What can be opened on a simulated node while one agent runs on it.
pub struct SimStreams {
    shells: Arc<SimShells>,
    terminals: OnceLock<Terminals>,
    /// Of the agent: a machine that does not exist has no kernel.
    logs: LogStreams,
}

impl SimStreams {
    pub fn new(shells: Arc<SimShells>, log: Log) -> Self {
        Self { shells, terminals: OnceLock::new(), logs: LogStreams::new(log, None) }
    }

    /// How many sessions have processes.
    pub fn count(&self) -> usize {
        self.terminals.get().map_or(0, Terminals::count)
    }
}

#[async_trait]
impl Handler for SimStreams {
    async fn attach(&self, grant: Grant) -> Result<Box<dyn Attached>, Refusal> {
        match grant.target.kind() {
            StreamKind::Log => self.logs.attach(grant).await,
            StreamKind::Pty => {
                self.terminals.get_or_init(|| Terminals::new(self.shells.clone())).attach(grant).await
            }
            StreamKind::Tcp => Err(NOT_SUPPORTED),
        }
    }
}

#[async_trait]
impl Streams for SimStreams {
    async fn end_owner(&self, owner: &str) {
        if let Some(terminals) = self.terminals.get() {
            terminals.end_owner(owner).await;
        }
        // Others never had a home.
        if owner.parse::<AllocationId>().is_ok() {
            self.shells.remove_home(owner).await;
        }
    }

    async fn stop(&self) {
        self.logs.stop();
        if let Some(terminals) = self.terminals.get() {
            terminals.stop().await;
        }
    }

    fn terminal_sessions(&self) -> Vec<TerminalSessionReport> {
        self.terminals.get().map(Terminals::terminal_sessions).unwrap_or_default()
    }
}
