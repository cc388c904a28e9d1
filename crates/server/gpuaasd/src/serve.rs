//! The public listener and the operations listener: bounded places, headers and patience. What bounds a connection once
//! it is there is in the crate `listener`.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, extract::ConnectInfo, response::Response};
use endpoint::Stopping;
use http::Request;
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use listener::{Connection, Held, Limits, Place, Places};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{client_address::Network, config, secret_file};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address}: is another program using it?")]
    Bind {
        address: SocketAddr,
        #[source]
        error: io::Error,
    },
    #[error("the TLS certificate or key cannot be used ({cert} and {key}): {reason}")]
    Tls { cert: String, key: String, reason: String },
}

/// What bounds one listener.
#[derive(Clone)]
pub struct Bounds {
    /// The label of its metrics.
    pub name: &'static str,
    pub connections: usize,
    /// Of one address.
    pub connections_each: usize,
    /// Proxies, whose address stands for many.
    pub shared_addresses: Arc<[Network]>,
    /// For a handshake, and for the headers of a request.
    pub header_read_timeout: Duration,
    pub stall_timeout: Duration,
    pub idle_timeout: Duration,
}

const HEADER_BYTES: usize = 64 * 1024;
const HTTP2_STREAMS_PER_CONNECTION: u32 = 200;
const HTTP2_KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Out of file descriptors, or the peer was gone already.
const AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(50);

/// A listener that runs.
pub struct Serving {
    tasks: TaskTracker,
    stop: CancellationToken,
    cut: CancellationToken,
}

impl Serving {
    /// No new connections; those that are open finish what is under way.
    pub fn begin_stop(&self) {
        self.stop.cancel();
        self.tasks.close();
    }

    /// Until all connections ended; what is left at the deadline is cut.
    pub async fn stopped(&self, deadline: Instant) {
        self.begin_stop();
        if tokio::time::timeout_at(deadline, self.tasks.wait()).await.is_err() {
            tracing::warn!("connections did not end in time and are cut");
            self.cut.cancel();
            self.tasks.wait().await;
        }
    }
}

/// Binds at once, so that a taken port is reported at start-up, then serves until it is stopped.
pub async fn serve(
    address: SocketAddr,
    router: Router,
    tls: Option<&config::Tls>,
    bounds: Bounds,
) -> Result<Serving, ServeError> {
    let socket = TcpListener::bind(address).await.map_err(|error| ServeError::Bind { address, error })?;
    let tls = tls.map(acceptor).transpose()?;
    let (tasks, stop, cut) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
    let limits = Limits {
        first_bytes: bounds.header_read_timeout,
        stall: bounds.stall_timeout,
        idle: bounds.idle_timeout,
    };
    let server = Server {
        places: Places::new(bounds.connections, bounds.connections_each, bounds.connections),
        connection: Connection { listener: bounds.name, limits, stop: stop.clone(), cut: cut.clone() },
        http: http(&bounds),
        bounds,
        router,
        tls,
        tasks: tasks.clone(),
    };
    tasks.spawn(Arc::new(server).run(socket));
    Ok(Serving { tasks, stop, cut })
}

fn http(bounds: &Bounds) -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_read_timeout)
        .max_buf_size(HEADER_BYTES);
    http.http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER_BYTES as u32)
        .max_concurrent_streams(HTTP2_STREAMS_PER_CONNECTION)
        .keep_alive_interval(Some(HTTP2_KEEP_ALIVE))
        .keep_alive_timeout(HTTP2_KEEP_ALIVE);
    http
}

fn acceptor(files: &config::Tls) -> Result<TlsAcceptor, ServeError> {
    let shown = |path: &Path| path.display().to_string();
    let failed = |reason: String| ServeError::Tls {
        cert: shown(&files.cert_file),
        key: shown(&files.key_file),
        reason,
    };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(&files.cert_file).and_then(|certificates| certificates.collect());
    let chain = chain.map_err(|error| failed(error.to_string()))?;
    let key = secret_file::read(&files.key_file).map_err(|error| failed(error.to_string()))?;
    let key =
        PrivateKeyDer::from_pem_slice(key.expose().as_bytes()).map_err(|error| failed(error.to_string()))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.map_err(|error| failed(error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

struct Server {
    places: Arc<Places>,
    bounds: Bounds,
    connection: Connection,
    http: Builder<TokioExecutor>,
    router: Router,
    tls: Option<TlsAcceptor>,
    tasks: TaskTracker,
}

impl Server {
    /// A connection is accepted when there is a place for it; until then it waits in the kernel and takes no file
    /// descriptor of ours.
    async fn run(self: Arc<Self>, socket: TcpListener) {
        let stop = self.connection.stop.clone();
        let next = async || {
            let vacancy = self.places.vacancy().await?;
            Some((vacancy, socket.accept().await))
        };
        while let Some(Some((vacancy, accepted))) = stop.run_until_cancelled(next()).await {
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(listener = self.bounds.name, %error, "a connection could not be accepted");
                    tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
                    continue;
                }
            };
            let is_shared = self.bounds.shared_addresses.iter().any(|network| network.holds(address.ip()));
            let place = if is_shared {
                Some(Places::occupy_for_many(vacancy))
            } else {
                self.places.occupy(vacancy, address.ip())
            };
            match place {
                Some(place) => {
                    self.tasks.spawn(self.clone().connection(stream, address, place));
                }
                None => {
                    metrics::counter!("connections_refused_total", "listener" => self.bounds.name)
                        .increment(1);
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, address: SocketAddr, place: Place) {
        let _ = stream.set_nodelay(true);
        let connection = self.connection.clone();
        let stopping = Stopping(connection.stop.clone());
        let service =
            WithConnection { router: self.router.clone(), address, stopping, held: Held::new(place) };
        match &self.tls {
            None => connection.serve(&self.http, stream, service).await,
            Some(tls) => {
                let handshake = tokio::time::timeout(self.bounds.header_read_timeout, tls.accept(stream));
                let handshake = connection.cut.clone().run_until_cancelled_owned(handshake).await;
                let Some(Ok(Ok(stream))) = handshake else { return };
                connection.serve(&self.http, stream, service).await;
            }
        }
    }
}

/// The router, for one connection: handlers ask who is at its other end, and whether it is to end.
#[derive(Clone)]
struct WithConnection {
    router: Router,
    address: SocketAddr,
    stopping: Stopping,
    held: Held,
}

impl<B> tower::Service<Request<B>> for WithConnection
where
    B: axum::body::HttpBody<Data = axum::body::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(self.address));
        request.extensions_mut().insert(self.stopping.clone());
        request.extensions_mut().insert(self.held.clone());
        Box::pin(tower::Service::call(&mut self.router.clone(), request))
    }
}
