//! A log of a node through its tunnel: one connection.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use sdk::{Client, reqwest, types};
use serde::Deserialize;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::logs::{Line, Source};
use crate::{
    app::App,
    failure::{Exit, Failure, Result},
    session::Session,
    terminal::{Refusal, Retry, Socket, Ticket, connect_to, http_client},
};

const PROTOCOL: &str = "gpuaas.node-logs.v1";
/// The token was not accepted.
const NOT_ACCEPTED: u16 = 4401;
/// The server sends something at least every 30 seconds.
const SILENCE: Duration = Duration::from_secs(95);
/// The node may have to be asked to connect.
const LIVE_WITHIN: Duration = Duration::from_secs(45);
/// No node keeps more.
const MOST_RECENT: usize = 4000;
const FAREWELL: Duration = Duration::from_secs(1);

/// What the server says.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Said {
    Lines {
        lines: Vec<Line>,
    },
    Live,
    Dropped {
        lines: u64,
    },
    LogError {
        code: String,
        message: String,
        retryable: bool,
    },
    /// From a newer server.
    #[serde(other)]
    Unknown,
}

/// How connections to a log are made.
pub struct LogServer<'a> {
    http: reqwest::Client,
    server: &'a str,
    client: Client,
    session: Arc<Session>,
    node: String,
    source: Source,
}

/// A log that is live: what was logged before it was, and the rest as it comes.
pub struct LiveLog {
    socket: Socket,
    pub recent: Vec<Line>,
    /// Lines that were missing already.
    pub dropped: u64,
}

fn lost(message: impl Into<String>) -> Refusal {
    Refusal { failure: Failure::new(Exit::Server, message), retry: Retry::After(Duration::ZERO) }
}

/// What an error of the server means for this command.
fn refused(code: String, message: String, retryable: bool) -> Refusal {
    let exit = match code.as_str() {
        "revoked" | "not_allowed" => Exit::Auth,
        "no_such_log" | "log_unavailable" | "not_supported" => Exit::NotFound,
        _ => Exit::Server,
    };
    // Whoever follows for long is asked to come with a new token.
    let again = retryable || code == "expired";
    let retry = if again { Retry::After(Duration::ZERO) } else { Retry::Never };
    let mut failure = Failure::new(exit, message);
    failure.code = Some(code);
    Refusal { failure, retry }
}

impl<'a> LogServer<'a> {
    pub fn new(app: &'a App, node: String, source: Source) -> Result<Self> {
        let session = Arc::new(app.session()?);
        let client = sdk::connect(&app.server, app.http.clone(), session.clone());
        Ok(Self { http: http_client()?, server: &app.server, client, session, node, source })
    }

    /// Connects, and reads until the log is live.
    pub async fn connect(&self, lines: u64) -> std::result::Result<LiveLog, Refusal> {
        self.session.current_token().await?;
        let body = types::NodeLogTokenCreate {
            source: match self.source {
                Source::Agent => types::NodeLogSource::Agent,
                Source::Kernel => types::NodeLogSource::Kernel,
            },
            lines: i64::try_from(lines).ok(),
        };
        let request = self.client.node_log_token_create(&self.node, &body);
        let issued = Box::pin(request).await.map_err(sdk::Error::from)?.into_inner();
        let ticket = Ticket { url: &issued.url, token: &issued.token, protocol: PROTOCOL };
        let socket = connect_to(&self.http, self.server, &ticket).await?;
        let mut log = LiveLog { socket, recent: Vec::new(), dropped: 0 };
        match timeout(LIVE_WITHIN, log.read_recent()).await {
            Ok(read) => read.map(|()| log),
            Err(_) => Err(lost("the node did not answer in time")),
        }
    }
}

impl LiveLog {
    async fn read_recent(&mut self) -> std::result::Result<(), Refusal> {
        loop {
            match self.next().await? {
                Said::Lines { lines } => self.recent.extend(lines),
                Said::Dropped { lines } => self.dropped += lines,
                Said::Live => return Ok(()),
                Said::LogError { .. } | Said::Unknown => {}
            }
            if self.recent.len() > MOST_RECENT {
                return Err(lost("the server sent more lines than a node keeps"));
            }
        }
    }

    /// What the server says next; errors are refusals. May be cancelled.
    pub async fn next(&mut self) -> std::result::Result<Said, Refusal> {
        loop {
            let text = match timeout(SILENCE, self.socket.next()).await {
                Ok(Some(Ok(Message::Text(text)))) => text,
                Ok(Some(Ok(Message::Close(Some(frame))))) if u16::from(frame.code) == NOT_ACCEPTED => {
                    let failure = Failure::new(Exit::Auth, "the server did not accept the token for the log");
                    return Err(Refusal { failure, retry: Retry::Never });
                }
                Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) | Err(_) => {
                    return Err(lost("the connection was lost"));
                }
                Ok(Some(Ok(_))) => continue,
            };
            match serde_json::from_str(&text) {
                Ok(Said::LogError { code, message, retryable }) => {
                    return Err(refused(code, message, retryable));
                }
                Ok(said) => return Ok(said),
                Err(error) => {
                    let text = format!("the server does not follow the protocol: {error}");
                    return Err(Refusal { failure: Failure::new(Exit::Server, text), retry: Retry::Never });
                }
            }
        }
    }

    /// Says goodbye, as far as the server listens.
    pub async fn close(mut self) {
        let _ = timeout(FAREWELL, self.socket.close(None)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_is_read_and_what_is_new_is_passed_over() {
        let said = |text: &str| serde_json::from_str::<Said>(text).unwrap();
        assert_eq!(said(r#"{"type":"live"}"#), Said::Live);
        assert_eq!(said(r#"{"type":"dropped","lines":7}"#), Said::Dropped { lines: 7 });
        assert_eq!(said(r#"{"type":"weather","is":"fine"}"#), Said::Unknown);
        let line = r#"{"at":"2026-01-01T00:00:00Z","level":"info","source":"a","message":"b"}"#;
        let Said::Lines { lines } = said(&format!(r#"{{"type":"lines","lines":[{line}]}}"#)) else {
            panic!()
        };
        assert_eq!((lines[0].level.as_str(), lines[0].message.as_str()), ("info", "b"));
    }

    #[test]
    fn only_what_may_pass_is_retried_and_an_hour_that_is_over_begins_again() {
        let retry = |code: &str, retryable| refused(code.to_owned(), String::new(), retryable).retry;
        assert_eq!(retry("revoked", false), Retry::Never);
        assert_eq!(retry("no_such_log", false), Retry::Never);
        assert_eq!(retry("gateway_restarting", true), Retry::After(Duration::ZERO));
        assert_eq!(retry("expired", false), Retry::After(Duration::ZERO));
    }
}
