//! The side that answers streams: an agent, on a connection that it dialled.

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use node_proto::grant::{Grant, GrantError, SignedGrant};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};

use crate::{
    GRANT_HEADER, LARGEST_GRANT, REASON_HEADER, STREAMS,
    connection::{Profile, StreamGuard, Streams, TunnelError, unanswered},
    gate::Gate,
    stream::Stream,
};

/// Why a node does not open what a grant allows: a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub &'static str);

/// Opens what grants name.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Gets it ready, before the other end is told that it is open.
    async fn attach(&self, grant: Grant) -> Result<Box<dyn Attached>, Refusal>;

    /// A signer is not known, and may have come since: asks for the signers in force. True when they changed.
    async fn refresh_signers(&self) -> bool {
        false
    }
}

/// Something with an open stream. It is dropped with the tunnel.
#[async_trait]
pub trait Attached: Send {
    async fn run(self: Box<Self>, stream: Stream);
}

/// Answers streams until the tunnel ends. Everything that was attached ends with it.
pub async fn serve<Io>(
    io: Io,
    profile: Profile,
    gate: Arc<Gate>,
    handler: Arc<dyn Handler>,
) -> Result<(), TunnelError>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut builder = Builder::new();
    builder
        .initial_window_size(profile.window)
        .initial_connection_window_size(profile.connection_window())
        .max_concurrent_streams(profile.most_streams)
        .max_header_list_size(u32::try_from(LARGEST_GRANT).unwrap_or(u32::MAX).saturating_mul(2))
        .max_send_buffer_size(profile.window as usize)
        .max_frame_size(profile.frame);
    let shaken = tokio::time::timeout(profile.open_within, builder.handshake::<_, Bytes>(io)).await;
    let mut connection = shaken.map_err(|_| TunnelError::NoAnswer)??;
    let pings = connection.ping_pong();
    let streams = Streams::default();
    let mut running = JoinSet::new();
    let silent = async {
        match pings {
            Some(pings) => unanswered(pings, profile.ping_every).await,
            None => std::future::pending().await,
        }
    };
    let idle = streams.idle(profile.idle);
    tokio::pin!(silent, idle);
    loop {
        tokio::select! {
            accepted = connection.accept() => match accepted {
                None => return Ok(()),
                Some(accepted) => {
                    let (request, response) = accepted?;
                    let (gate, handler, open) = (gate.clone(), handler.clone(), streams.add());
                    running.spawn(answer(request, response, gate, handler, profile, open));
                }
            },
            error = &mut silent => return Err(error),
            () = &mut idle => return Ok(()),
            Some(_) = running.join_next(), if !running.is_empty() => {}
        }
    }
}

async fn answer(
    request: Request<h2::RecvStream>,
    mut response: SendResponse<Bytes>,
    gate: Arc<Gate>,
    handler: Arc<dyn Handler>,
    profile: Profile,
    open: StreamGuard,
) {
    let (head, receiver) = request.into_parts();
    if head.method != Method::POST || head.uri.path() != STREAMS {
        return refuse(&mut response, StatusCode::NOT_FOUND, "not_found");
    }
    let Some(signed) = presented(&head.headers) else {
        return refuse(&mut response, StatusCode::BAD_REQUEST, "malformed");
    };
    let admitted = match gate.admit(&signed) {
        Err(GrantError::UnknownSigner) if handler.refresh_signers().await => gate.admit(&signed),
        other => other,
    };
    let grant = match admitted {
        Ok(grant) => grant,
        Err(error) => {
            tracing::warn!(%error, "a stream is refused");
            return refuse(&mut response, StatusCode::FORBIDDEN, &code(&error));
        }
    };
    let attached = match tokio::time::timeout(profile.open_within, handler.attach(grant)).await {
        Ok(Ok(attached)) => attached,
        Ok(Err(Refusal(reason))) => return refuse(&mut response, StatusCode::CONFLICT, reason),
        Err(_) => return refuse(&mut response, StatusCode::GATEWAY_TIMEOUT, "too_slow"),
    };
    match response.send_response(Response::new(()), false) {
        Ok(sender) => attached.run(Stream::new(sender, receiver, open)).await,
        Err(error) => tracing::debug!(%error, "a stream ended before it was open"),
    }
}

fn presented(headers: &HeaderMap) -> Option<SignedGrant> {
    let text = headers.get(GRANT_HEADER).filter(|text| text.len() <= LARGEST_GRANT)?;
    serde_json::from_slice(&BASE64_STANDARD.decode(text).ok()?).ok()
}

/// The name of the error in the contract.
fn code(error: &GrantError) -> String {
    let name = serde_json::to_value(error).ok();
    name.as_ref().and_then(|name| name.as_str()).unwrap_or("refused").to_owned()
}

fn refuse(response: &mut SendResponse<Bytes>, status: StatusCode, reason: &str) {
    let answer = Response::builder().status(status).header(REASON_HEADER, reason).body(());
    if let Ok(answer) = answer {
        // Whoever is not there any more needs no answer.
        let _ = response.send_response(answer, true);
    }
}
