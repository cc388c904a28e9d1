//! SSH: from a WebSocket to a connection to the SSH server of a machine.
//!
//! Nothing is kept here but what is on its way: the client is not read while the node's window is full, and the node's window
//! is given back only after the client's socket took the bytes. The end of one direction does not end the other, and when one
//! breaks, what the other has on its way still arrives. It is checked every second whether the client may still enter. A
//! connection ends with its time to live, which the token sealed, and breaks with its gateway.

use axum::{
    extract::{Path, State, ws::WebSocket},
    response::Response,
};
use fleet::api::ReachError;
use node_proto::contract::TunnelClass;
use node_tunnel::OpenError;
use tokio::time::Instant;

use super::{
    Gateway, NODE_TOO_OLD,
    admit::{Admitted, Handshake, NOT_ACCEPTED, SocketKind, close},
    meter::CountedUp,
    revocation::{MustEnd, Pause},
    ssh_connection::{Connection, End, LOST},
    ssh_grant::{SshGrant, sealed_grant},
};
use crate::model::{
    ssh::{LARGEST_SSH_MESSAGE, SSH_PROTOCOL},
    token::TokenKind,
};

const SSH_SOCKET: SocketKind =
    SocketKind { protocol: SSH_PROTOCOL, largest_message: LARGEST_SSH_MESSAGE, read_buffer: 64 * 1024 };

pub async fn upgrade_ssh(
    State(gateway): State<Gateway>,
    Path(allocation): Path<String>,
    handshake: Handshake,
) -> Response {
    let serving = gateway.clone();
    gateway.accept(handshake, SSH_SOCKET, move |mut socket, token| async move {
        let consumed = serving.consume(token, &allocation, TokenKind::Ssh).await;
        let Some(admitted) = serving.admit(&mut socket, consumed).await else { return };
        serving.ssh_connect(socket, admitted).await;
    })
}

impl Gateway {
    async fn ssh_connect(&self, mut socket: WebSocket, admitted: Admitted) {
        let began = Instant::now();
        let Some((SshGrant { node, actor, lasts }, grant)) = sealed_grant(&admitted) else {
            return close(&mut socket, NOT_ACCEPTED, "the token was not accepted").await;
        };
        let consumed = admitted.consumed;
        let path = (consumed.project_id, consumed.allocation_id);
        let allowed = || self.allowed(&self.0.ssh_endpoint, consumed.sign_in, path);
        let principal = match allowed().await {
            Ok(principal) => principal,
            Err(failure) => {
                let why = MustEnd::refused(&failure);
                return Connection::new(socket).say_farewell(End::Told(why)).await;
            }
        };
        if actor != principal.to_string() {
            return Connection::new(socket).say_farewell(End::NotAccepted).await;
        }
        let stream = match self.0.tunnels.open(node, TunnelClass::Bulk, &grant).await {
            Ok(stream) => stream,
            Err(error) => {
                return Connection::new(socket).say_farewell(End::Told(refusal(&error))).await;
            }
        };
        metrics::histogram!("ssh_connect_seconds").record(began.elapsed().as_secs_f64());
        tracing::info!(allocation_id = %path.1, node_id = %node, "an SSH connection is open");
        let counted = CountedUp::new(metrics::gauge!("ssh_connections"));
        let connection = Connection::new(socket);
        let pause = Pause::new();
        let end = tokio::select! {
            end = pause.gate(connection.run(stream)) => end,
            why = self.must_end(&pause, principal, began + lasts, allowed) => End::Told(why),
        };
        connection.say_farewell(end).await;
        drop(counted);
    }
}

/// What a client is told of a node that does not open a connection, and whether a new token may help.
fn refusal(error: &ReachError) -> MustEnd {
    let (code, retryable) = match error {
        ReachError::TooOld { .. } => (NODE_TOO_OLD, false),
        ReachError::NotConnected | ReachError::NotAsked => ("node_unreachable", true),
        ReachError::Open(OpenError::Refused(code)) => match code.as_str() {
            "no_ssh_server" => ("no_ssh_server", true),
            "too_many_streams" => ("too_many_connections", true),
            "no_such_owner" => ("machine_not_ready", true),
            "not_supported" | "port_not_allowed" => ("not_supported", false),
            "stopping" | "unavailable" | "too_slow" => ("node_unavailable", true),
            // A grant that came too late or from a signer that the node does not know yet.
            _ => ("grant_refused", true),
        },
        ReachError::Open(_) => (LOST, true),
    };
    MustEnd { retryable, ..MustEnd::new(code, error.to_string()) }
}
