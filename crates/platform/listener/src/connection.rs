//! Drives one connection, and cuts it when its client holds it up.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use http::{Request, Response};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    body::Watched,
    socket::Socket,
    traffic::{DRAIN_STALL, Traffic},
};

/// How long a client may hold a connection without moving on.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until the beginning of the first request.
    pub first_bytes: Duration,
    /// Until the client takes a piece of an answer.
    pub stall: Duration,
    /// Until the next request.
    pub idle: Duration,
}

const LOOK_WHILE_DRAINING: Duration = Duration::from_millis(100);

/// What the connections of one listener have in common.
#[derive(Clone)]
pub struct Connection {
    /// The label of its metrics.
    pub listener: &'static str,
    pub limits: Limits,
    /// Finish what is under way.
    pub stop: CancellationToken,
    /// End at once.
    pub cut: CancellationToken,
}

enum Verdict {
    GoOn,
    /// Finish what is under way, and then leave.
    Leave,
    Cut(&'static str),
}

impl Connection {
    /// Until the connection ends, is cut, or becomes something else than HTTP (a WebSocket), whose limits are its own.
    pub async fn serve<I, S>(self, builder: &Builder<TokioExecutor>, io: I, service: S)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: tower::Service<Request<hyper::body::Incoming>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let traffic = Arc::new(Traffic::new());
        let socket = Socket::new(io, traffic.clone(), self.limits.first_bytes);
        let service = Watched { service, traffic: traffic.clone(), stop: self.stop.clone() };
        let serving =
            builder.serve_connection_with_upgrades(TokioIo::new(socket), TowerToHyperService::new(service));
        let mut serving = Box::pin(serving);
        let mut leaving: Option<Instant> = None;
        loop {
            let look_after = if leaving.is_some() { LOOK_WHILE_DRAINING } else { self.limits.stall / 2 };
            let verdict = tokio::select! {
                ended = &mut serving => {
                    if let Err(error) = ended {
                        tracing::debug!(listener = self.listener, %error, "a connection broke");
                    }
                    return;
                }
                () = self.cut.cancelled() => Verdict::Cut("shutdown"),
                () = self.stop.cancelled(), if leaving.is_none() => Verdict::Leave,
                () = tokio::time::sleep(look_after) => judge(&traffic, &self.limits, leaving),
            };
            match verdict {
                Verdict::GoOn => {}
                Verdict::Leave => {
                    leaving = Some(Instant::now());
                    serving.as_mut().graceful_shutdown();
                }
                Verdict::Cut(reason) => {
                    metrics::counter!("connections_cut_total", "listener" => self.listener, "reason" => reason)
                        .increment(1);
                    tracing::debug!(listener = self.listener, reason, "a connection was cut");
                    return;
                }
            }
        }
    }
}

fn judge(traffic: &Traffic, limits: &Limits, leaving: Option<Instant>) -> Verdict {
    let (stalled_for, idle_for) = (traffic.stalled_for(), traffic.idle_for());
    let Some(leaving) = leaving else {
        return if stalled_for >= limits.stall {
            Verdict::Cut("not_reading")
        } else if idle_for >= limits.idle {
            Verdict::Leave
        } else {
            Verdict::GoOn
        };
    };
    if stalled_for.min(leaving.elapsed()) >= DRAIN_STALL {
        Verdict::Cut("not_reading")
    } else if idle_for.min(leaving.elapsed()) >= DRAIN_STALL {
        // What waits in buffers of the protocol for a window that does not open, or a head that never ends.
        Verdict::Cut("did_not_leave")
    } else {
        Verdict::GoOn
    }
}
