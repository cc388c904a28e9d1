//! The WebSocket connection. It is made by the HTTP client of the program, which knows this machine's certificate
//! authorities and proxies.

use std::time::Duration;

use sdk::{
    ApiError, Error,
    reqwest::{
        self, Upgraded,
        header::{AUTHORIZATION, CONNECTION, HeaderName, HeaderValue, UPGRADE},
    },
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};

use super::{mint::Minted, protocol::SUBPROTOCOL};

pub type Socket = WebSocketStream<Upgraded>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// From the request to the switch of protocols.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// The largest message that is read: no more output can be on its way.
const MOST_MESSAGE_BYTES: usize = 256 * 1024;

const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
const ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");
const PROTOCOL: HeaderName = HeaderName::from_static("sec-websocket-protocol");
const VERSION: HeaderName = HeaderName::from_static("sec-websocket-version");

/// A client for connections that stay: HTTP/1.1, because HTTP/2 has no switch of protocols.
pub fn http_client() -> Result<reqwest::Client, Error> {
    let builder = || {
        reqwest::Client::builder()
            .user_agent(concat!("gpuaas-cli/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
    };
    // As in `sdk::http_client`: without certificate authorities, plain HTTP still works.
    let client = builder().build().or_else(|_| builder().tls_certs_only([]).build());
    client.map_err(Error::Network)
}

/// The right to one connection. No `Debug`: it must not be printed.
pub struct Ticket<'a> {
    /// A path of the server.
    pub url: &'a str,
    pub token: &'a str,
    pub protocol: &'static str,
}

/// Connects to a terminal.
pub async fn connect(http: &reqwest::Client, server: &str, minted: &Minted) -> Result<Socket, Error> {
    let ticket = Ticket { url: &minted.url, token: &minted.token, protocol: SUBPROTOCOL };
    connect_to(http, server, &ticket).await
}

/// Connects with a token, which is a header and never part of the address.
pub async fn connect_to(http: &reqwest::Client, server: &str, ticket: &Ticket<'_>) -> Result<Socket, Error> {
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(http, server, ticket)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(no_answer()),
    }
}

async fn handshake(http: &reqwest::Client, server: &str, ticket: &Ticket<'_>) -> Result<Socket, Error> {
    if !ticket.url.starts_with('/') {
        return Err(Error::Protocol("the server sent an invalid address to connect to".to_owned()));
    }
    let mut bearer = HeaderValue::from_str(&format!("Bearer {}", ticket.token))
        .map_err(|_| Error::Protocol("the server sent an invalid token".to_owned()))?;
    bearer.set_sensitive(true);
    let key = generate_key();
    let request = http
        .get(format!("{server}{}", ticket.url))
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(VERSION, "13")
        .header(KEY, &key)
        .header(PROTOCOL, ticket.protocol)
        .header(AUTHORIZATION, bearer);
    let response = request.send().await.map_err(Error::Network)?;
    let (status, headers) = (response.status(), response.headers().clone());
    if status != reqwest::StatusCode::SWITCHING_PROTOCOLS {
        let body = response.bytes().await.map_err(Error::Network)?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        return Err(Error::Api(Box::new(ApiError::read(status.as_u16(), &headers, &body))));
    }
    let is = |name: &HeaderName, value: &str| {
        headers.get(name).is_some_and(|sent| sent.as_bytes() == value.as_bytes())
    };
    if !is(&ACCEPT, &derive_accept_key(key.as_bytes())) || !is(&PROTOCOL, ticket.protocol) {
        return Err(Error::Protocol(format!("the server does not speak {}", ticket.protocol)));
    }
    let stream = response.upgrade().await.map_err(Error::Network)?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MOST_MESSAGE_BYTES))
        .max_frame_size(Some(MOST_MESSAGE_BYTES));
    Ok(WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await)
}

/// No answer in time, as if a proxy had said so.
fn no_answer() -> Error {
    Error::Api(Box::new(ApiError {
        status: 504,
        code: "timeout".to_owned(),
        message: "The server did not answer in time.".to_owned(),
        suggestion: String::new(),
        correlation_id: String::new(),
        details: serde_json::Value::Null,
        retry_after_seconds: None,
    }))
}
