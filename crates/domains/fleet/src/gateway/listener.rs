//! Connections: accepted within bounds, judged once, served until they end.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::Request;
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use listener::{Limits, Place, Places};
use node_tunnel::{Profile, ReadAhead};
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Config, Shared,
    caller::{Connection, Presented},
    node_places::NodePlaces,
};

const STREAMS: u32 = 16;
const HEADER_BYTES: u32 = 16 * 1024;
/// Small, because most connections do nothing but wait. A large result takes a few round trips more.
const WINDOW: u32 = 64 * 1024;
const SEND_BUFFER: usize = 64 * 1024;
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// A node has a long poll open nearly always.
const IDLE: Duration = Duration::from_secs(300);
/// Whoever is nobody may enrol in this time, and is then sent away.
const STRANGERS_STAY: Duration = Duration::from_secs(60);
const WAIT_FOR_PLACE: Duration = Duration::from_secs(10);
const AFTER_FAILURE: Duration = Duration::from_millis(50);

pub struct Listener {
    pub(super) shared: Arc<Shared>,
    tls: TlsAcceptor,
    http1: Builder<TokioExecutor>,
    http2: Builder<TokioExecutor>,
    places: Arc<Semaphore>,
    /// Places of those who have not proven anything yet.
    strangers: Arc<Places>,
    nodes: NodePlaces,
    patience: Duration,
    connection: listener::Connection,
    tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl Listener {
    pub fn new(
        shared: Arc<Shared>,
        tls: ServerConfig,
        config: &Config,
        tasks: TaskTracker,
        stop: CancellationToken,
        cut: CancellationToken,
    ) -> Arc<Self> {
        let strangers = (config.max_connections / 16).clamp(64, 1024);
        // Whoever waits holds a socket too: both together stay within the share.
        let waiting = (config.max_connections / 4).max(1);
        let places = config.max_connections.saturating_sub(waiting).max(1);
        let mut http = Builder::new(TokioExecutor::new());
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(config.patience)
            .max_buf_size(HEADER_BYTES as usize);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEADER_BYTES)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(2 * WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .auto_date_header(false)
            .keep_alive_interval(Some(KEEP_ALIVE))
            .keep_alive_timeout(KEEP_ALIVE);
        Arc::new(Self {
            shared,
            tls: TlsAcceptor::from(Arc::new(tls)),
            http1: http.clone().http1_only(),
            http2: http.http2_only(),
            places: Arc::new(Semaphore::new(places)),
            strangers: Places::new(strangers, strangers / 2, waiting),
            connection: listener::Connection {
                listener: "nodes",
                limits: Limits { first_bytes: config.patience, stall: config.stall, idle: IDLE },
                stop: stop.clone(),
                cut,
            },
            nodes: NodePlaces::default(),
            patience: config.patience,
            tasks,
            stop,
        })
    }

    pub async fn run(self: Arc<Self>, socket: TcpListener) {
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    let this = self.clone();
                    self.tasks.spawn(async move { Box::pin(this.connection(stream, address)).await });
                }
                // Out of file descriptors, or the peer was gone already.
                Err(error) => {
                    tracing::warn!(%error, "a connection of a node could not be accepted");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    /// What a connection needs only in the beginning lives in a box that is gone while it waits.
    async fn connection(self: Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let Some((_place, stranger)) = self.place(address).await else {
            metrics::counter!("node_refusals_total", "reason" => "too_many_connections").increment(1);
            return;
        };
        let _counted = Counted::new();
        let Some((stream, connection)) = Box::pin(self.greet(stream, address)).await else { return };
        match connection.node() {
            Some(node) => {
                drop(stranger);
                let Some(place) = self.nodes.enter(node) else {
                    metrics::counter!("node_refusals_total", "reason" => "too_many_of_one_node").increment(1);
                    return;
                };
                match Profile::class(stream.get_ref().1.alpn_protocol()) {
                    Some(class) => Box::pin(self.tunnel(*stream, connection, class, place)).await,
                    None => {
                        self.http(*stream, connection).await;
                        drop(place);
                    }
                }
            }
            None if Profile::class(stream.get_ref().1.alpn_protocol()).is_some() => {
                Box::pin(self.refuse_stranger(&connection)).await;
            }
            None => {
                let _ = tokio::time::timeout(STRANGERS_STAY, self.http(*stream, connection)).await;
                drop(stranger);
            }
        }
    }

    /// The handshake, and who it was with.
    async fn greet(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Option<(Box<TlsStream<ReadAhead<TcpStream>>>, Arc<Connection>)> {
        let _ = stream.set_nodelay(true);
        let opened_at = self.shared.fleet.db().ambient().now();
        let handshake = tokio::time::timeout(self.patience, self.tls.accept(ReadAhead::new(stream)));
        let Ok(Ok(stream)) = handshake.await else {
            metrics::counter!("node_refusals_total", "reason" => "handshake").increment(1);
            return None;
        };
        match self.judge(&stream).await {
            Ok(presented) => {
                let source = address.ip().to_canonical();
                Some((Box::new(stream), Arc::new(Connection { presented, source, opened_at })))
            }
            Err(failure) => {
                tracing::warn!(error = ?failure, "a certificate could not be verified; the node must reconnect");
                None
            }
        }
    }

    async fn place(&self, address: SocketAddr) -> Option<(OwnedSemaphorePermit, Place)> {
        let both = async {
            let stranger = self.strangers.enter(address.ip()).await?;
            let place = self.places.clone().acquire_owned().await.ok()?;
            Some((place, stranger))
        };
        tokio::time::timeout(WAIT_FOR_PLACE, both).await.ok().flatten()
    }

    async fn judge(&self, stream: &TlsStream<ReadAhead<TcpStream>>) -> Result<Presented, kernel::Failure> {
        let Some(chain) = stream.get_ref().1.peer_certificates() else { return Ok(Presented::Nothing) };
        let fleet = &self.shared.fleet;
        let verifier = fleet.trust().verifier().await?;
        Ok(match verifier.verify(chain, fleet.db().ambient().now()) {
            Ok(certificate) => Presented::Node(certificate),
            Err(refusal) => Presented::Refused(refusal),
        })
    }

    fn http(
        &self,
        stream: TlsStream<ReadAhead<TcpStream>>,
        connection: Arc<Connection>,
    ) -> impl Future<Output = ()> + use<'_> {
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let builder = if is_http2 { &self.http2 } else { &self.http1 };
        let service = Service { shared: self.shared.clone(), connection };
        Box::pin(self.connection.clone().serve(builder, stream, service))
    }
}

/// A gauge that goes down by itself.
struct Counted;

impl Counted {
    fn new() -> Self {
        metrics::gauge!("node_connections").increment(1.0);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        metrics::gauge!("node_connections").decrement(1.0);
    }
}

/// Requests of one connection.
#[derive(Clone)]
struct Service {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
}

impl<B> tower::Service<Request<B>> for Service
where
    B: axum::body::HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (shared, connection) = (self.shared.clone(), self.connection.clone());
        Box::pin(async move { Ok(shared.serve(request.map(Body::new), connection).await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_3<A, B, C, F: Future>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    fn size_of_6<A, B, C, D, E, G, F: Future>(_: impl Fn(A, B, C, D, E, G) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_that_waits_takes_little_room() {
        let sizes = [
            ("connection", size_of_3(Listener::connection), 1024),
            ("request", size_of_3(Shared::serve), 1536),
            ("answer", size_of_6(Shared::answer), 4096),
        ];
        for (what, size, most) in sizes {
            assert!(size <= most, "{what} takes {size} bytes");
        }
    }
}
