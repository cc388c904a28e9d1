//! What can be opened on a node through a tunnel, by its kind.

use async_trait::async_trait;
use node_proto::{
    contract::TerminalSessionReport,
    grant::{Grant, StreamKind},
};
use node_tunnel::{Attached, Handler, Refusal};

use crate::{logs::LogStreams, session::Streams, ssh::SshStreams, terminals::Terminals};

/// The streams of a real machine, one field for each kind.
pub struct NodeStreams {
    pub terminals: Terminals,
    pub logs: LogStreams,
    pub ssh: SshStreams,
}

#[async_trait]
impl Handler for NodeStreams {
    async fn attach(&self, grant: Grant) -> Result<Box<dyn Attached>, Refusal> {
        match grant.target.kind() {
            StreamKind::Pty => self.terminals.attach(grant).await,
            StreamKind::Log => self.logs.attach(grant).await,
            StreamKind::Tcp => self.ssh.attach(grant).await,
        }
    }
}

#[async_trait]
impl Streams for NodeStreams {
    async fn end_owner(&self, owner: &str) {
        self.ssh.end_owner(owner);
        self.terminals.end_owner(owner).await;
    }

    async fn stop(&self) {
        self.logs.stop();
        self.ssh.stop().await;
        self.terminals.stop().await;
    }

    fn terminal_sessions(&self) -> Vec<TerminalSessionReport> {
        self.terminals.terminal_sessions()
    }
}
