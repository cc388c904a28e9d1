//! The terminal gateway: from a WebSocket of a client to a stream of a node.
//!
//! **A connection** (`admit`) brings a token in `Sec-WebSocket-Protocol` or as bearer, never in its URL. The token is consumed
//! in one statement; whoever has none that counts is closed with 4401 and learns no more. A browser must come from an origin of
//! ours.
//!
//! **An attachment** (`attach`) opens the grant that the token sealed, and with it a stream to the node. It is checked every
//! second whether its owner may still enter, by the rule of the endpoint that gave the token (`revocation`). Bytes go through
//! `pump`.
//!
//! **SSH** (`tcp`, `ssh_connection`) goes the same way, to the SSH server of the machine: bytes, and nothing that outlives the
//! gateway.
//!
//! **A log** of a node (`logs`) is followed the same way, by operators.
//!
//! **What is measured** of all this (`meter`, `spent_tokens`) costs nothing per byte, and is counted down however something ends.

mod admit;
mod attach;
mod farewell;
mod input_ack;
mod logs;
mod meter;
mod output;
mod position;
mod pump;
mod queue;
mod revocation;
mod spent_tokens;
mod ssh_connection;
mod ssh_grant;
mod storing;
mod tape;
mod tcp;

use std::sync::Arc;

use axum::{Router, routing::get};
use endpoint::{Declaration, Lanes, Services};
use fleet::api::Tunnels;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::spent_tokens::SpentTokens;
use crate::{
    Terminals,
    http::{logs::log_token_endpoint, ssh::ssh_token_endpoint, token_endpoint},
};

/// A node whose agent cannot connect to gateways: coming again does not help, a newer agent does.
const NODE_TOO_OLD: &str = "node_too_old";

/// What the installation says about its gateway.
pub struct Settings {
    /// Origins whose pages may connect, such as `https://gpuaas.example.org`.
    pub origins: Vec<String>,
    pub max_connections: usize,
    /// Clients are told to come again.
    pub stop: CancellationToken,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    terminals: Terminals,
    services: Services,
    tunnels: Tunnels,
    /// What open terminals are checked against.
    terminal_endpoint: Declaration,
    /// What open SSH connections are checked against.
    ssh_endpoint: Declaration,
    /// What logs that somebody follows are checked against.
    log_endpoint: Declaration,
    origins: Vec<String>,
    /// Attempts to connect, by network address.
    lanes: Arc<Lanes>,
    spent_tokens: SpentTokens,
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Gateway {
    pub fn new(terminals: Terminals, services: Services, tunnels: Tunnels, settings: Settings) -> Self {
        let terminal_endpoint = token_endpoint(&terminals).declaration().clone();
        let ssh_endpoint = ssh_token_endpoint(&terminals).declaration().clone();
        let log_endpoint = log_token_endpoint(&terminals).declaration().clone();
        let places = Arc::new(Semaphore::new(settings.max_connections));
        let Settings { origins, stop, .. } = settings;
        Self(Arc::new(Inner {
            terminals,
            services,
            tunnels,
            terminal_endpoint,
            ssh_endpoint,
            log_endpoint,
            origins,
            lanes: Lanes::start(),
            spent_tokens: SpentTokens::default(),
            places,
            stop,
        }))
    }

    pub fn router(&self) -> Router {
        Router::new()
            .route("/ws/terminal/{allocation_id}", get(admit::upgrade_terminal))
            .route("/ws/ssh/{allocation_id}", get(tcp::upgrade_ssh))
            .route("/ws/node-logs/{node_id}", get(logs::upgrade_logs))
            .with_state(self.clone())
    }
}
