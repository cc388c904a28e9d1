//! Listeners: bounded connections, bounded headers, bounded patience.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::Router;
use axum_server::{
    Handle,
    accept::Accept,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use hyper_util::rt::TokioTimer;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::config;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address}: is another program using it?")]
    Bind {
        address: SocketAddr,
        #[source]
        error: io::Error,
    },
    #[error("the TLS certificate or key cannot be used ({cert} and {key})")]
    Tls {
        cert: String,
        key: String,
        #[source]
        error: io::Error,
    },
}

/// What bounds one listener.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub connections: usize,
    pub header_read_timeout: Duration,
}

const HEADER_BYTES: usize = 64 * 1024;
const HTTP2_STREAMS_PER_CONNECTION: u32 = 200;

/// Binds at once, so that a taken port is reported at start-up, then serves until `handle` shuts it down.
pub async fn serve(
    address: SocketAddr,
    router: Router,
    tls: Option<&config::Tls>,
    bounds: Bounds,
    handle: Handle<SocketAddr>,
) -> Result<tokio::task::JoinHandle<()>, ServeError> {
    let bind = |error| ServeError::Bind { address, error };
    let listener = std::net::TcpListener::bind(address).map_err(bind)?;
    listener.set_nonblocking(true).map_err(bind)?;
    let limited =
        Limited { slots: Arc::new(Semaphore::new(bounds.connections)), patience: bounds.header_read_timeout };
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let mut server = axum_server::from_tcp(listener).map_err(bind)?.handle(handle).acceptor(limited.clone());
    let http = server.http_builder();
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_read_timeout)
        .max_buf_size(HEADER_BYTES);
    http.http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER_BYTES as u32)
        .max_concurrent_streams(HTTP2_STREAMS_PER_CONNECTION)
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(Duration::from_secs(20));
    let ended = move |result: io::Result<()>| {
        if let Err(error) = result {
            tracing::error!(%address, %error, "a listener ended");
        }
    };
    Ok(match tls {
        None => tokio::spawn(async move { ended(server.serve(service).await) }),
        Some(files) => {
            let config =
                RustlsConfig::from_pem_file(&files.cert_file, &files.key_file).await.map_err(|error| {
                    let shown = |p: &std::path::Path| p.display().to_string();
                    ServeError::Tls { cert: shown(&files.cert_file), key: shown(&files.key_file), error }
                })?;
            let server = server.acceptor(RustlsAcceptor::new(config).acceptor(limited));
            tokio::spawn(async move { ended(server.serve(service).await) })
        }
    })
}

/// Accepts at most so many connections at once; the next one waits a moment for a place and is then closed.
#[derive(Clone)]
pub struct Limited {
    slots: Arc<Semaphore>,
    /// How long a connection may stay silent at its beginning: before the version of the protocol is known,
    /// the HTTP implementation waits for ever.
    patience: Duration,
}

/// The preface of HTTP/2; by then the protocol is known and its own timeouts hold.
const LONGEST_PREFACE: usize = 24;
const WAIT_FOR_PLACE: Duration = Duration::from_secs(5);

impl<S: Send + 'static> Accept<TcpStream, S> for Limited {
    type Stream = Counted;
    type Service = S;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Counted, S)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let (slots, patience) = (self.slots.clone(), self.patience);
        Box::pin(async move {
            let full = || io::Error::other("too many connections");
            let place = tokio::time::timeout(WAIT_FOR_PLACE, slots.acquire_owned()).await;
            let _place = place.map_err(|_| full())?.map_err(|_| full())?;
            stream.set_nodelay(true)?;
            let deadline = Some(Box::pin(tokio::time::sleep(patience)));
            Ok((Counted { stream, received: 0, deadline, _place }, service))
        })
    }
}

/// A connection that frees its place when it ends.
pub struct Counted {
    stream: TcpStream,
    received: usize,
    /// Until the beginning of a request has come.
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buf.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.deadline.is_some() {
            self.received += buf.filled().len() - before;
            if self.received >= LONGEST_PREFACE {
                self.deadline = None;
            }
        }
        outcome
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
