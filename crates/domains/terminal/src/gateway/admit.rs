//! Who gets a WebSocket, and with which token.
//!
//! What all kinds of WebSockets have in common is [`Handshake`] and [`Gateway::accept`]: nothing in the URL, an origin of ours,
//! a place. What they are for differs by [`Purpose`]: a token of one kind is not accepted as one of another.

use std::time::Duration;

use axum::{
    extract::{
        FromRequestParts, Path, State,
        ws::{
            CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code,
            rejection::WebSocketUpgradeRejection,
        },
    },
    http::{HeaderMap, Uri, header, request::Parts},
    response::Response,
};
use kernel::{Code, CorrelationId, Failure, Problem, ids::AllocationId};
use listener::Held;

use super::Gateway;
use crate::{
    model::{
        message::{LARGEST_MESSAGE, PROTOCOL, TOKEN_PREFIX},
        token::{Purpose, TerminalToken, TokenKind},
    },
    service::upkeep::{Consumed, token_consume},
};

/// The token was not accepted. Nothing more is said.
pub const NOT_ACCEPTED: u16 = 4401;
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(2);
const READ_BUFFER: usize = 16 * 1024;

/// What a token allowed.
pub struct Admitted {
    pub consumed: Consumed,
    pub token: TerminalToken,
}

/// A request for a WebSocket, before it is answered.
pub struct Handshake {
    /// The place among the connections of the listener.
    held: Option<Held>,
    uri: Uri,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
}

impl<S: Send + Sync> FromRequestParts<S> for Handshake {
    type Rejection = WebSocketUpgradeRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self {
            held: parts.extensions.get().cloned(),
            uri: parts.uri.clone(),
            headers: parts.headers.clone(),
            upgrade: WebSocketUpgrade::from_request_parts(parts, state).await?,
        })
    }
}

pub async fn upgrade_terminal(
    State(gateway): State<Gateway>,
    Path(allocation): Path<String>,
    handshake: Handshake,
) -> Response {
    let serving = gateway.clone();
    gateway.accept(handshake, PROTOCOL, LARGEST_MESSAGE, move |mut socket, token| async move {
        let consumed = serving.consume(token, &allocation, TokenKind::Terminal).await;
        let Some(admitted) = serving.admit(&mut socket, consumed).await else { return };
        if let Purpose::Terminal { session_id } = admitted.consumed.purpose {
            serving.attach(socket, admitted, session_id).await;
        }
    })
}

/// From the header that the client can set.
fn token(headers: &HeaderMap) -> Option<TerminalToken> {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    if let Some(bearer) = text(header::AUTHORIZATION) {
        let (scheme, token) = bearer.split_once(' ')?;
        return TerminalToken::parse(token.trim()).filter(|_| scheme.eq_ignore_ascii_case("bearer"));
    }
    let mut protocols = text(header::SEC_WEBSOCKET_PROTOCOL)?.split(',').map(str::trim);
    TerminalToken::parse(protocols.find_map(|name| name.strip_prefix(TOKEN_PREFIX))?)
}

impl Gateway {
    /// Programs that are no browsers say no origin.
    fn is_own_origin(&self, headers: &HeaderMap) -> bool {
        match headers.get(header::ORIGIN) {
            None => true,
            Some(origin) => self.0.origins.iter().any(|own| own.as_bytes() == origin.as_bytes()),
        }
    }

    /// Answers with a WebSocket, in which `serve` has the place until it ends.
    pub fn accept<F, Served>(
        &self,
        handshake: Handshake,
        protocol: &'static str,
        largest_message: usize,
        serve: F,
    ) -> Response
    where
        F: FnOnce(WebSocket, Option<TerminalToken>) -> Served + Send + 'static,
        Served: Future<Output = ()> + Send,
    {
        let Handshake { held, uri, headers, upgrade } = handshake;
        let refuse = |problem: Problem| {
            let id = CorrelationId(self.0.terminals.db.ambient().uuid());
            endpoint::problem_response(&problem, id)
        };
        if uri.query().is_some() {
            // What stands in a URL is logged on its way.
            let text = "The address of a WebSocket takes no parameters: the token belongs into a header.";
            return refuse(Problem::new(Code::InvalidRequest, text));
        }
        if !self.is_own_origin(&headers) {
            return refuse(Problem::new(
                Code::InsufficientPermissions,
                "The page is not of this installation.",
            ));
        }
        let Ok(place) = self.0.places.clone().try_acquire_owned() else {
            let text = "This gateway has as many connections open as it may have.";
            return refuse(Problem::new(Code::ServiceUnavailable, text).retry_after(5));
        };
        let token = token(&headers);
        upgrade
            .protocols([protocol])
            .max_message_size(largest_message)
            .max_frame_size(largest_message)
            .read_buffer_size(READ_BUFFER)
            .on_upgrade(async move |socket| {
                let _held = (held, place);
                Box::pin(serve(socket, token)).await;
            })
    }

    /// What a token allowed; the client of one that does not count is told that, and no more.
    pub async fn admit<T>(
        &self,
        socket: &mut WebSocket,
        consumed: Result<Result<T, &'static str>, Failure>,
    ) -> Option<T> {
        match consumed {
            Ok(Ok(admitted)) => return Some(admitted),
            Ok(Err(reason)) => {
                metrics::counter!("terminal_tokens_refused_total", "reason" => reason).increment(1);
                close(socket, NOT_ACCEPTED, "the token was not accepted").await;
            }
            Err(failure) => {
                tracing::warn!(error = ?failure, "a token could not be checked");
                close(socket, close_code::AGAIN, "try again").await;
            }
        }
        None
    }

    /// Uses a token for this machine up, if it is of this kind.
    pub async fn consume(
        &self,
        token: Option<TerminalToken>,
        allocation: &str,
        kind: TokenKind,
    ) -> Result<Result<Admitted, &'static str>, Failure> {
        let Some(token) = token else { return Ok(Err("missing")) };
        let Ok(allocation) = allocation.parse::<AllocationId>() else { return Ok(Err("malformed")) };
        let db = &self.0.terminals.db;
        let consumed = token_consume(&self.0.terminals, &token.hash()).await?;
        Ok(match consumed {
            None => Err("unknown_or_used"),
            Some(consumed) if consumed.purpose.kind() != kind => Err("other_kind"),
            Some(consumed) if consumed.allocation_id != allocation => Err("other_allocation"),
            Some(consumed) if consumed.expires_at <= db.ambient().now() => Err("expired"),
            Some(consumed) => Ok(Admitted { consumed, token }),
        })
    }
}

/// Says why, as far as the client listens.
pub async fn close(socket: &mut WebSocket, code: u16, reason: &'static str) {
    let frame = CloseFrame { code, reason: reason.into() };
    let _ = tokio::time::timeout(FAREWELL, socket.send(Message::Close(Some(frame)))).await;
}

#[cfg(test)]
mod tests {
    use kernel::Ambient;

    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_comes_as_bearer_or_in_the_list_of_protocols() {
        let known = TerminalToken::random(&Ambient::system());
        let text = known.text();
        let text = text.expose();
        let found = |name, value: String| token(&headers(&[(name, &value)])).map(|token| token.hash());
        let hash = Some(known.hash());
        assert_eq!(found(header::AUTHORIZATION, format!("Bearer {text}")), hash);
        assert_eq!(found(header::SEC_WEBSOCKET_PROTOCOL, format!("{PROTOCOL}, token.{text}")), hash);
        assert_eq!(found(header::AUTHORIZATION, format!("Basic {text}")), None);
        assert_eq!(found(header::SEC_WEBSOCKET_PROTOCOL, format!("{PROTOCOL}, {text}")), None);
        assert_eq!(found(header::COOKIE, format!("token={text}")), None);
    }
}
