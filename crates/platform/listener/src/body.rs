//! Requests and answers of one connection, counted, and the bodies of answers, watched.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::{Request, Response, Version, header};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::traffic::Traffic;

/// A peer that takes less than this within the stall limit is cut. HTTP/2 hands whole frames to its own buffer as
/// soon as one byte of the window is open, so larger ones are split.
pub(crate) const PIECE_BYTES: usize = 16 * 1024;

/// Counts the requests of a connection and watches their answers.
#[derive(Clone)]
pub(crate) struct Watched<S> {
    pub service: S,
    pub traffic: Arc<Traffic>,
    pub stop: CancellationToken,
}

impl<S, B> tower::Service<Request<B>> for Watched<S>
where
    S: tower::Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<WatchedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let under_way = UnderWay::begin(&self.traffic);
        let is_http2 = request.version() == Version::HTTP_2;
        let stop = self.stop.clone();
        let answer = self.service.call(request);
        Box::pin(async move { Ok(watch(answer.await?, is_http2, stop, under_way)) })
    }
}

fn watch(
    response: Response<Body>,
    is_http2: bool,
    stop: CancellationToken,
    under_way: UnderWay,
) -> Response<WatchedBody> {
    let content = response.headers().get(header::CONTENT_TYPE);
    // Such an answer has no end of its own; its client comes again.
    let is_endless = content.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    response.map(|body| WatchedBody {
        id: (!body.is_end_stream()).then(|| under_way.0.body_begins()),
        piece_bytes: if is_http2 { PIECE_BYTES } else { usize::MAX },
        rest: Bytes::new(),
        stop: is_endless.then(|| Box::pin(stop.cancelled_owned())),
        body,
        under_way,
    })
}

/// A request, from its head to the end of its answer.
struct UnderWay(Arc<Traffic>);

impl UnderWay {
    fn begin(traffic: &Arc<Traffic>) -> Self {
        traffic.request_begins();
        Self(traffic.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.request_ends();
    }
}

/// Notes when it gave a piece and when the next one is wanted.
pub(crate) struct WatchedBody {
    body: Body,
    /// Nothing for a body that is empty from the beginning: nobody asks for it.
    id: Option<u64>,
    piece_bytes: usize,
    /// What is left of a frame that was split.
    rest: Bytes,
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    under_way: UnderWay,
}

impl WatchedBody {
    fn piece(&mut self) -> Bytes {
        let bytes = self.rest.len().min(self.piece_bytes);
        self.rest.split_to(bytes)
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(http_body::Frame::data(self.piece()))));
        }
        if let Some(stop) = &mut self.stop
            && stop.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    http_body::Frame::data(self.piece())
                }
                Err(other) => other,
            }))),
            ended => Poll::Ready(ended),
        }
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let next = self.poll_next(cx);
        if let Some(id) = self.id {
            match &next {
                Poll::Ready(Some(_)) => self.under_way.0.body_offered(id),
                _ => self.under_way.0.body_taken(id),
            }
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.under_way.0.body_taken(id);
        }
    }
}
