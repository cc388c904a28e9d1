//! Tokens for terminals: one for each connection, used once and kept nowhere.

use std::{sync::Arc, time::Duration};

use kernel::ids::TerminalSessionId;
use sdk::{Client, types};

use super::protocol::Access;
use crate::{
    app::App,
    failure::{Exit, Failure, Result},
    session::Session,
};

/// A token. No `Debug`: it must not be printed.
pub struct Minted {
    pub token: String,
    pub session_id: TerminalSessionId,
    /// Where to connect: a path of the server.
    pub url: String,
}

/// Why there is no token or no connection.
#[derive(Debug)]
pub struct Refusal {
    pub failure: Failure,
    pub retry: Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Never,
    After(Duration),
    /// While the server may not have noticed that the former connection of this window is lost.
    WhileStale,
}

impl From<sdk::Error> for Refusal {
    fn from(error: sdk::Error) -> Self {
        let retry = match &error {
            // What is not an answer of the API may be one of a proxy, whose server is away.
            sdk::Error::Network(_) | sdk::Error::Protocol(_) => Retry::After(Duration::ZERO),
            sdk::Error::Api(api) => match api.status {
                408 | 429 | 500.. => Retry::After(Duration::from_secs(api.retry_after_seconds.unwrap_or(0))),
                _ => Retry::Never,
            },
            sdk::Error::Auth(_) | sdk::Error::Request(_) => Retry::Never,
        };
        Self { failure: Failure::from(error), retry }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let retry = if failure.exit == Exit::Server { Retry::After(Duration::ZERO) } else { Retry::Never };
        Self { failure, retry }
    }
}

/// Whoever makes tokens.
pub trait Mint {
    /// For a new session, or for one that exists.
    async fn mint(
        &self,
        session: Option<TerminalSessionId>,
        access: Access,
    ) -> std::result::Result<Minted, Refusal>;
}

/// The API of the server.
pub struct ApiMint {
    client: Client,
    session: Arc<Session>,
    project: String,
    allocation: String,
}

impl ApiMint {
    /// The client of its own prints nothing while it waits: the terminal belongs to the program on the machine.
    pub fn new(app: &App, project: String, allocation: String) -> Result<Self> {
        let session = Arc::new(app.session()?);
        let client = sdk::connect(&app.server, app.http.clone(), session.clone());
        Ok(Self { client, session, project, allocation })
    }
}

impl Mint for ApiMint {
    async fn mint(
        &self,
        session: Option<TerminalSessionId>,
        access: Access,
    ) -> std::result::Result<Minted, Refusal> {
        self.session.current_token().await?;
        let body = types::TerminalTokenCreate {
            access: match access {
                Access::Write => types::TerminalAccess::Write,
                Access::TakeOver => types::TerminalAccess::TakeOver,
                Access::Watch => types::TerminalAccess::Watch,
            },
            session_id: session.map(|session| session.to_string()),
        };
        let request = self.client.terminal_token_create(&self.project, &self.allocation, &body);
        let issued = Box::pin(request).await.map_err(sdk::Error::from)?.into_inner();
        let session_id = issued.session_id.parse().map_err(|error| {
            Failure::new(Exit::Server, format!("the server sent an invalid session: {error}"))
        })?;
        Ok(Minted { token: issued.token, session_id, url: issued.url })
    }
}

#[cfg(test)]
mod tests {
    use sdk::ApiError;
    use serde_json::Value;

    use super::*;

    fn api(status: u16, retry_after_seconds: Option<u64>) -> Retry {
        let (code, message, suggestion) = (String::new(), String::new(), String::new());
        let (correlation_id, details) = (String::new(), Value::Null);
        let error =
            ApiError { status, code, message, suggestion, correlation_id, details, retry_after_seconds };
        Refusal::from(sdk::Error::Api(Box::new(error))).retry
    }

    #[test]
    fn what_may_pass_is_retried_no_sooner_than_the_server_asks() {
        assert_eq!(api(429, Some(42)), Retry::After(Duration::from_secs(42)));
        for status in [408, 429, 500, 502, 503, 504] {
            assert_eq!(api(status, None), Retry::After(Duration::ZERO), "{status}");
        }
        // 409: the session has ended.
        for status in [301, 400, 401, 402, 403, 404, 409, 422] {
            assert_eq!(api(status, Some(1)), Retry::Never, "{status}");
        }
    }

    /// A sign-in is renewed with its issuer, which may not be reachable when the server is not.
    #[test]
    fn a_sign_in_that_has_ended_is_not_retried_and_an_issuer_that_is_away_is() {
        assert_eq!(Refusal::from(Failure::new(Exit::Auth, "ended")).retry, Retry::Never);
        assert_eq!(Refusal::from(Failure::new(Exit::Server, "away")).retry, Retry::After(Duration::ZERO));
    }
}
