//! The side that opens streams: a gateway, on a connection that the agent dialled.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{Method, Request, StatusCode};
use node_proto::grant::SignedGrant;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    GRANT_HEADER, REASON_HEADER, STREAMS,
    connection::{Profile, Streams, TunnelError, unanswered},
    stream::Stream,
};

/// Headers of an answer.
const LARGEST_ANSWER: u32 = 4096;
/// Between the end of the streams of a broken connection and the end of its tunnel.
const ENDS_SOON: Duration = Duration::from_millis(100);

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The node refused the grant or its target; the code says why.
    #[error("the node refused the stream: {0}")]
    Refused(String),
    #[error("the node did not answer within {} s", .0.as_secs())]
    NoAnswer(Duration),
    #[error("the grant cannot be sent: {0}")]
    Malformed(String),
    #[error(transparent)]
    Broken(#[from] h2::Error),
}

/// A tunnel to one node. It ends when it is dropped, with all of its streams.
pub struct Tunnel {
    requests: SendRequest<Bytes>,
    streams: Streams,
    profile: Profile,
    ended: watch::Receiver<bool>,
    _driver: AbortOnDropHandle<()>,
}

impl Tunnel {
    pub async fn start<Io>(io: Io, profile: Profile) -> Result<Self, TunnelError>
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = Builder::new();
        builder
            .initial_window_size(profile.window)
            .initial_connection_window_size(profile.connection_window())
            .max_send_buffer_size(profile.window as usize)
            .max_frame_size(profile.frame)
            // An answer is a status and a code: a node that sends more is not ours.
            .max_header_list_size(LARGEST_ANSWER)
            .enable_push(false);
        let shaken = tokio::time::timeout(profile.open_within, builder.handshake::<_, Bytes>(io)).await;
        let (requests, mut connection) = shaken.map_err(|_| TunnelError::NoAnswer)??;
        let pings = connection.ping_pong();
        let streams = Streams::default();
        let (end, ended) = watch::channel(false);
        let watched = streams.clone();
        let driver = tokio::spawn(async move {
            let silent = async {
                match pings {
                    Some(pings) => unanswered(pings, profile.ping_every).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "a tunnel broke");
                },
                error = silent => tracing::debug!(%error, "a tunnel is given up"),
                () = watched.idle(profile.idle) => tracing::debug!("a tunnel is idle"),
            }
            let _ = end.send(true);
        });
        Ok(Self { requests, streams, profile, ended, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Opens a stream with a grant. The node has accepted it when this returns.
    pub async fn open(&self, grant: &SignedGrant) -> Result<Stream, OpenError> {
        let malformed = |error: &dyn std::fmt::Display| OpenError::Malformed(error.to_string());
        let header = serde_json::to_vec(grant).map_err(|error| malformed(&error))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("https://node{STREAMS}"))
            .header(GRANT_HEADER, BASE64_STANDARD.encode(header))
            .body(())
            .map_err(|error| malformed(&error))?;
        let opening = async {
            let mut requests = self.requests.clone().ready().await?;
            let open = self.streams.add();
            let (answer, sender) = requests.send_request(request, false)?;
            Ok::<_, h2::Error>((answer.await?, sender, open))
        };
        let limit = self.profile.open_within;
        let (answer, sender, open) =
            tokio::time::timeout(limit, opening).await.map_err(|_| OpenError::NoAnswer(limit))??;
        if answer.status() != StatusCode::OK {
            let reason = answer.headers().get(REASON_HEADER).and_then(|reason| reason.to_str().ok());
            return Err(OpenError::Refused(reason.unwrap_or("unknown").to_owned()));
        }
        Ok(Stream::new(sender, answer.into_body(), open))
    }

    pub fn open_streams(&self) -> usize {
        self.streams.open()
    }

    /// Whether it has ended or is about to: a broken connection is seen by its streams first.
    pub async fn ends_soon(&self) -> bool {
        tokio::time::timeout(ENDS_SOON, self.ended()).await.is_ok()
    }

    /// Ends with the tunnel.
    pub async fn ended(&self) {
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(|ended| *ended).await;
    }
}
