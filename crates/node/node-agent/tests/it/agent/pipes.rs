//! The network between the agent and its control plane.

use std::{io, sync::Arc};

use node_agent::transport::Connect;
use tokio::io::DuplexStream;

use super::gateway::{Gateway, HOST};

/// Each connection is a pipe in memory.
pub struct Pipes(pub Arc<Gateway>);

impl Connect for Pipes {
    type Io = DuplexStream;

    async fn connect(&self, host: &str, port: u16) -> io::Result<DuplexStream> {
        assert_eq!((host, port), (HOST, 7443));
        if self.0.reports_lock().down {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(self.0.clone().serve(theirs));
        Ok(ours)
    }
}
