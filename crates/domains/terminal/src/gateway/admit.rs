//! Who gets a WebSocket, and with which token.
//!
//! What all kinds of WebSockets have in common is [`Handshake`] and [`Gateway::accept`]: nothing in the URL, an origin of ours,
//! a place, and before all that a limit on attempts by network address. What they are for differs by [`Purpose`]: a token of
//! one kind is not accepted as one of another.

use std::{net::SocketAddr, time::Duration};

use axum::{
    extract::{
        ConnectInfo, FromRequestParts, Path, State,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code},
    },
    http::{HeaderMap, Uri, header, request::Parts},
    response::{IntoResponse, Response},
};
use endpoint::{Lane, address_holder, problem_response};
use kernel::{Code, CorrelationId, Failure, Problem, ids::AllocationId};
use listener::Held;

use super::Gateway;
use crate::{
    model::{
        message::{LARGEST_MESSAGE, PROTOCOL, TOKEN_PREFIX},
        token::{Purpose, TerminalToken, TokenKind},
    },
    service::upkeep::{Consumed, Expires, token_consume},
};

/// The token was not accepted. Nothing more is said.
pub const NOT_ACCEPTED: u16 = 4401;
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// Seconds, when there is no place now.
const RETRY_AFTER: u64 = 5;

/// A kind of WebSocket.
pub struct SocketKind {
    pub protocol: &'static str,
    pub largest_message: usize,
    /// What one read from the client takes; each connection holds so much.
    pub read_buffer: usize,
}

const TERMINAL_SOCKET: SocketKind =
    SocketKind { protocol: PROTOCOL, largest_message: LARGEST_MESSAGE, read_buffer: 16 * 1024 };

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

impl FromRequestParts<Gateway> for Handshake {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, gateway: &Gateway) -> Result<Self, Self::Rejection> {
        if let Err(failure) = gateway.attempt_admit(parts).await {
            return Err(gateway.refuse(&failure));
        }
        let upgrade = WebSocketUpgrade::from_request_parts(parts, gateway).await;
        Ok(Self {
            held: parts.extensions.get().cloned(),
            uri: parts.uri.clone(),
            headers: parts.headers.clone(),
            upgrade: upgrade.map_err(IntoResponse::into_response)?,
        })
    }
}

pub async fn upgrade_terminal(
    State(gateway): State<Gateway>,
    Path(allocation): Path<String>,
    handshake: Handshake,
) -> Response {
    let serving = gateway.clone();
    gateway.accept(handshake, TERMINAL_SOCKET, move |mut socket, token| async move {
        let consumed = serving.consume(token, &allocation, TokenKind::Terminal).await;
        let Some(admitted) = serving.admit(&mut socket, consumed).await else { return };
        if let Purpose::Terminal { session_id } = admitted.consumed.purpose {
            Box::pin(serving.attach(socket, admitted, session_id)).await;
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
    /// Whoever comes here has proved nothing: an address has so many attempts, before anything is looked up for it.
    async fn attempt_admit(&self, request: &Parts) -> Result<(), Failure> {
        let address = request.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        let holder = address.map(address_holder).unwrap_or_default();
        let lane = Lane::WebSocket;
        let per_minute = self.0.services.policies.setting(lane.policy(), None, None).await?;
        self.0.lanes.admit(lane, per_minute, &holder)?;
        Ok(())
    }

    fn refuse(&self, failure: &Failure) -> Response {
        let id = CorrelationId(self.0.terminals.db.ambient().uuid());
        match failure {
            Failure::Problem(problem) => problem_response(problem, id),
            Failure::Internal(_) | Failure::Bug(_) => {
                tracing::warn!(error = ?failure, "a WebSocket could not be admitted");
                problem_response(&Problem::from_code(Code::ServiceUnavailable).retry_after(RETRY_AFTER), id)
            }
        }
    }

    /// Programs that are no browsers say no origin.
    fn is_own_origin(&self, headers: &HeaderMap) -> bool {
        match headers.get(header::ORIGIN) {
            None => true,
            Some(origin) => self.0.origins.iter().any(|own| own.as_bytes() == origin.as_bytes()),
        }
    }

    /// Answers with a WebSocket, in which `serve` has the place until it ends.
    pub fn accept<F, Served>(&self, handshake: Handshake, kind: SocketKind, serve: F) -> Response
    where
        F: FnOnce(WebSocket, Option<TerminalToken>) -> Served + Send + 'static,
        Served: Future<Output = ()> + Send,
    {
        let Handshake { held, uri, headers, upgrade } = handshake;
        let refuse = |reason: &'static str, problem: Problem| {
            metrics::counter!("terminal_connections_refused_total", "reason" => reason).increment(1);
            self.refuse(&problem.into())
        };
        if uri.query().is_some() {
            // What stands in a URL is logged on its way.
            let text = "The address of a WebSocket takes no parameters: the token belongs into a header.";
            return refuse("token_in_url", Problem::new(Code::InvalidRequest, text));
        }
        if !self.is_own_origin(&headers) {
            let text = "The page is not of this installation.";
            return refuse("origin", Problem::new(Code::InsufficientPermissions, text));
        }
        let Ok(place) = self.0.places.clone().try_acquire_owned() else {
            let text = "This gateway has as many connections open as it may have.";
            let problem = Problem::new(Code::ServiceUnavailable, text).retry_after(RETRY_AFTER);
            return refuse("full", problem);
        };
        let token = token(&headers);
        upgrade
            .protocols([kind.protocol])
            .max_message_size(kind.largest_message)
            .max_frame_size(kind.largest_message)
            .read_buffer_size(kind.read_buffer)
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
        let Ok(allocation) = allocation.parse::<AllocationId>() else { return Ok(Err("malformed")) };
        let look_up = |hash| token_consume(&self.0.terminals, hash);
        let consumed = self.token_consume(token, look_up, |consumed: &Consumed| {
            if consumed.purpose.kind() != kind {
                Some("other_kind")
            } else {
                (consumed.allocation_id != allocation).then_some("other_allocation")
            }
        });
        Ok(consumed.await?.map(|(consumed, token)| Admitted { consumed, token }))
    }

    /// What a token was good for, which `look_up` uses up. Why it is not accepted, if it is not: `refuse` knows what it was not
    /// made for.
    pub async fn token_consume<T: Expires, LookedUp: Future<Output = Result<Option<T>, Failure>>>(
        &self,
        token: Option<TerminalToken>,
        look_up: impl FnOnce([u8; 32]) -> LookedUp,
        refuse: impl FnOnce(&T) -> Option<&'static str>,
    ) -> Result<Result<(T, TerminalToken), &'static str>, Failure> {
        let Some(token) = token else { return Ok(Err("missing")) };
        let hash = token.hash();
        let Some(consumed) = look_up(hash).await? else { return Ok(Err(self.0.spent_tokens.refusal(&hash))) };
        self.0.spent_tokens.note(hash);
        if let Some(reason) = refuse(&consumed) {
            return Ok(Err(reason));
        }
        let is_late = consumed.expires_at() <= self.0.terminals.db.ambient().now();
        Ok(if is_late { Err("expired") } else { Ok((consumed, token)) })
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
