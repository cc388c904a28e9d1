//! One HTTP/2 connection to one address, dialled again when it breaks.
//!
//! All requests of an agent share the connection. Whoever needs it while it is down dials, one at a time and
//! no sooner than the wait after the failure before allows. Every step has a time limit, and no answer is
//! read beyond the size that its caller allows.

mod backoff;
mod tls;

use std::{future::Future, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kernel::Ambient;
use node_proto::contract::Route;
use node_tunnel::ReadAhead;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{Mutex, watch},
    task::AbortHandle,
    time::{Instant, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

pub use backoff::{Backoff, fraction, jittered};
pub use tls::{Believed, Pair, TlsError, certificates, client_config};

pub(crate) const DIAL_LIMIT: Duration = Duration::from_secs(15);
/// The longest that a request waits for a connection, pauses between attempts included.
const CONNECTION_LIMIT: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const LARGEST_ERROR: u64 = 64 * 1024;
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_LIMIT: Duration = Duration::from_secs(20);

/// How bytes get to the control plane. Real agents use [`Tcp`]; tests and simulations bring their own.
pub trait Connect: Send + Sync + 'static {
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    fn connect(&self, host: &str, port: u16) -> impl Future<Output = io::Result<Self::Io>> + Send;

    /// Whether the next message of this route arrives twice. Real networks never do that by themselves;
    /// simulated ones prove that it would do no harm.
    fn repeats(&self, _route: &Route) -> bool {
        false
    }
}

/// The machine's own network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Connect for Tcp {
    type Io = TcpStream;

    async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error("{0} is not the address of a node listener; it has the form https://host:port")]
    BadUrl(String),
    #[error("cannot connect to {address}: {error}")]
    Dial { address: String, error: io::Error },
    #[error("{address} does not prove to be the control plane: {error}")]
    NotTrusted { address: String, error: rustls::Error },
    #[error("{0} does not speak HTTP/2")]
    NoHttp2(String),
    #[error("{what} took longer than {seconds} s")]
    Timeout { what: &'static str, seconds: u64 },
    #[error("{0} accepts no tunnels")]
    NoTunnel(String),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

/// Where the node listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
    name: ServerName<'static>,
}

impl Address {
    pub fn parse(url: &str) -> Result<Self, TransportError> {
        let bad = || TransportError::BadUrl(url.to_owned());
        let parsed = url::Url::parse(url).map_err(|_| bad())?;
        let plain = parsed.username().is_empty()
            && parsed.password().is_none()
            && parsed.query().is_none()
            && parsed.fragment().is_none()
            && matches!(parsed.path(), "" | "/");
        if parsed.scheme() != "https" || !plain {
            return Err(bad());
        }
        let host = parsed.host_str().ok_or_else(bad)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|_| bad())?;
        Ok(Self { port: parsed.port_or_known_default().ok_or_else(bad)?, host, name })
    }

    /// As it stands in a request.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

type Sender = http2::SendRequest<Full<Bytes>>;

/// A connection and what drives it; ends at once when nobody uses it any more.
struct Connection {
    sender: Sender,
    driver: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

struct State {
    tls: Arc<ClientConfig>,
    connection: Option<Arc<Connection>>,
    backoff: Backoff,
    not_before: Option<Instant>,
}

pub struct Transport<C> {
    connect: Arc<C>,
    address: Address,
    ambient: Ambient,
    state: Mutex<State>,
    /// How many connections there were.
    connections: watch::Sender<u64>,
}

impl<C: Connect> Transport<C> {
    pub fn new(connect: Arc<C>, address: Address, ambient: Ambient, tls: Arc<ClientConfig>) -> Self {
        let backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let state = State { tls, connection: None, backoff, not_before: None };
        Self { connect, address, ambient, state: Mutex::new(state), connections: watch::Sender::new(0) }
    }

    /// Changes with each new connection, which may be to another gateway.
    pub fn connections(&self) -> watch::Receiver<u64> {
        self.connections.subscribe()
    }

    pub const fn address(&self) -> &Address {
        &self.address
    }

    pub fn repeats(&self, route: &Route) -> bool {
        self.connect.repeats(route)
    }

    /// From now on connections use these settings. Requests under way end on the connection that they have.
    pub async fn change_tls(&self, tls: Arc<ClientConfig>) {
        let mut state = self.state.lock().await;
        state.tls = tls;
        state.connection = None;
        state.not_before = None;
    }

    /// Sends a request and gives the answer's head within `limit`; waits for a connection before, if need be.
    async fn begin(
        &self,
        request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<(Response<Incoming>, Arc<Connection>), TransportError> {
        let connection = within("connecting", CONNECTION_LIMIT, self.connection()).await??;
        let mut sender = connection.sender.clone();
        let answer = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        match within("the request", limit, answer).await? {
            Ok(answer) => Ok((answer, connection)),
            Err(error) => {
                self.forget(&connection).await;
                Err(TransportError::Broken(describe(&error)))
            }
        }
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
        limit: Duration,
        largest: usize,
    ) -> Result<Response<Bytes>, TransportError> {
        let ends = Instant::now() + limit;
        let (answer, _connection) = self.begin(request, limit).await?;
        let (head, body) = answer.into_parts();
        let reading = Limited::new(body, largest).collect();
        let left = ends.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        let body = within("reading the answer", left, reading).await?.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                TransportError::TooLarge(largest)
            } else {
                TransportError::Broken(error.to_string())
            }
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }

    /// Sends a request and hands the body of a good answer to `take`, piece by piece; each must come within
    /// `limit`. What is said in any other answer is returned.
    pub async fn stream(
        &self,
        request: Request<Full<Bytes>>,
        limit: Duration,
        largest: u64,
        take: &mut (dyn FnMut(&[u8]) -> io::Result<()> + Send),
    ) -> Result<Response<Bytes>, TransportError> {
        let (answer, _connection) = self.begin(request, limit).await?;
        let (head, mut body) = answer.into_parts();
        let good = head.status.is_success();
        let largest = if good { largest } else { LARGEST_ERROR };
        let (mut seen, mut kept) = (0_u64, Vec::new());
        while let Some(frame) = within("reading the answer", limit, body.frame()).await? {
            let frame = frame.map_err(|error| TransportError::Broken(describe(&error)))?;
            let Ok(data) = frame.into_data() else { continue };
            seen = seen.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
            if seen > largest {
                return Err(TransportError::TooLarge(usize::try_from(largest).unwrap_or(usize::MAX)));
            }
            if good {
                take(&data).map_err(|error| TransportError::Broken(error.to_string()))?;
            } else {
                kept.extend_from_slice(&data);
            }
        }
        Ok(Response::from_parts(head, kept.into()))
    }

    async fn forget(&self, broken: &Arc<Connection>) {
        let mut state = self.state.lock().await;
        if state.connection.as_ref().is_some_and(|held| Arc::ptr_eq(held, broken)) {
            state.connection = None;
        }
    }

    async fn connection(&self) -> Result<Arc<Connection>, TransportError> {
        let mut state = self.state.lock().await;
        if let Some(connection) = state.connection.as_ref().filter(|held| !held.sender.is_closed()) {
            return Ok(connection.clone());
        }
        state.connection = None;
        if let Some(not_before) = state.not_before {
            tokio::time::sleep_until(not_before).await;
        }
        let dialled = Box::pin(within("connecting", DIAL_LIMIT, self.dial(state.tls.clone()))).await;
        match dialled.and_then(|result| result) {
            Ok(connection) => {
                let connection = Arc::new(connection);
                state.connection = Some(connection.clone());
                state.backoff.succeeded();
                state.not_before = None;
                self.connections.send_modify(|count| *count += 1);
                Ok(connection)
            }
            Err(error) => {
                state.not_before = Some(Instant::now() + state.backoff.failed(&self.ambient));
                Err(error)
            }
        }
    }

    async fn dial(&self, tls: Arc<ClientConfig>) -> Result<Connection, TransportError> {
        let stream = connect_tls(&*self.connect, &self.address, tls).await?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(TransportError::NoHttp2(self.address.authority()));
        }
        let (sender, driver) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_LIMIT)
            .max_header_list_size(16 * 1024)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| TransportError::Broken(describe(&error)))?;
        let driver = tokio::spawn(async move {
            // Whoever uses the connection learns of its end from his own request.
            let _ = driver.await;
        });
        Ok(Connection { sender, driver: driver.abort_handle() })
    }
}

/// Connects, and lets the other side prove that it is the control plane.
pub async fn connect_tls<C: Connect>(
    connect: &C,
    address: &Address,
    tls: Arc<ClientConfig>,
) -> Result<TlsStream<ReadAhead<C::Io>>, TransportError> {
    let dial = |error| TransportError::Dial { address: address.authority(), error };
    let stream = connect.connect(&address.host, address.port).await.map_err(dial)?;
    TlsConnector::from(tls).connect(address.name.clone(), ReadAhead::new(stream)).await.map_err(|error| {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(inner) => TransportError::NotTrusted { address: address.authority(), error: inner.clone() },
            None => dial(error),
        }
    })
}

async fn within<T>(
    what: &'static str,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, TransportError> {
    timeout(limit, future).await.map_err(|_| TransportError::Timeout { what, seconds: limit.as_secs() })
}

/// hyper says what happened in the source.
fn describe(error: &hyper::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// A request as the node contract wants it.
pub fn request(
    address: &Address,
    method: &str,
    path_and_query: &str,
    body: Option<Bytes>,
) -> Result<Request<Full<Bytes>>, TransportError> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("https://{}{path_and_query}", address.authority()))
        .header(node_proto::contract::CONTRACT_HEADER, node_proto::contract::CONTRACT);
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    request
        .body(Full::new(body.unwrap_or_default()))
        .map_err(|_| TransportError::BadUrl(path_and_query.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_https_and_nothing_but_host_and_port() {
        assert_eq!(Address::parse("https://cp.example:7443").unwrap().authority(), "cp.example:7443");
        assert_eq!(Address::parse("https://[::1]:7443/").unwrap().authority(), "[::1]:7443");
        assert_eq!(Address::parse("https://10.0.0.1").unwrap().authority(), "10.0.0.1:443");
        for bad in ["http://cp.example", "https://u:p@cp", "https://cp/x", "https://cp?token=1", "cp:443", ""]
        {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
