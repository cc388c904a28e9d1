//! The credentials of this run, in this order: `GPUAAS_TOKEN`, `GPUAAS_SERVICE_ACCOUNT_KEY`, the stored sign-in.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use kernel::Ambient;
use sdk::{
    Anonymous, Client, TokenSource,
    oidc::{Issuer, PublicClient, ServiceAccountKey},
};
use tokio::sync::Mutex;

use crate::{
    credentials::{Credentials, SignIn, is_fresh},
    failure::{Exit, Failure, Result},
};

pub const TOKEN_VARIABLE: &str = "GPUAAS_TOKEN";
pub const KEY_VARIABLE: &str = "GPUAAS_SERVICE_ACCOUNT_KEY";

/// Who the person is, and a refresh token.
pub const SCOPE: &str = "openid profile email offline_access";

/// What the server says about signing in.
pub struct SignInConfig {
    pub issuer: String,
    pub client: PublicClient,
}

/// Asks the server where to sign in.
pub async fn sign_in_config(http: &sdk::reqwest::Client, server: &str) -> Result<SignInConfig> {
    let client: Client = sdk::connect(server, http.clone(), Arc::new(Anonymous));
    let config = Box::pin(client.auth_config_get()).await.map_err(sdk::Error::from)?.into_inner();
    Ok(SignInConfig {
        client: PublicClient {
            id: config.cli_client_id,
            audience: audience_to_ask_for(server, &config.issuer, config.audience),
        },
        issuer: config.issuer,
    })
}

/// None for a server that is its own issuer. A server whose issuer has another address than the one we use gets the
/// audience and ignores it.
fn audience_to_ask_for(server: &str, issuer: &str, audience: String) -> Option<String> {
    (server.trim_end_matches('/') != issuer.trim_end_matches('/')).then_some(audience)
}

/// Where the token of this run comes from.
pub enum Origin {
    Environment(String),
    ServiceAccount(ServiceAccountKey),
    Stored,
}

impl Origin {
    pub fn of_environment() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        if let Some(token) = variable(TOKEN_VARIABLE) {
            return Ok(Self::Environment(token.trim().to_owned()));
        }
        match variable(KEY_VARIABLE) {
            Some(key) => {
                let key = ServiceAccountKey::parse(&key)
                    .map_err(|error| Failure::new(Exit::Auth, format!("{KEY_VARIABLE}: {error}")))?;
                Ok(Self::ServiceAccount(key))
            }
            None => Ok(Self::Stored),
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Self::Environment(_) => format!("the token in {TOKEN_VARIABLE}"),
            Self::ServiceAccount(key) => format!("the service account key {} in {KEY_VARIABLE}", key.id()),
            Self::Stored => "the stored sign-in".to_owned(),
        }
    }
}

/// Returns tokens, refreshing them when they have expired.
pub struct Session {
    pub server: String,
    pub origin: Origin,
    pub credentials: Credentials,
    http: sdk::reqwest::Client,
    ambient: Ambient,
    /// The token of this run and when it expires.
    current: Mutex<Option<(String, i64)>>,
}

impl Session {
    pub fn new(
        server: String,
        origin: Origin,
        credentials: Credentials,
        http: sdk::reqwest::Client,
        ambient: Ambient,
    ) -> Self {
        Self { server, origin, credentials, http, ambient, current: Mutex::new(None) }
    }

    fn now(&self) -> i64 {
        self.ambient.now().timestamp()
    }

    pub async fn current_token(&self) -> Result<String> {
        let mut current = self.current.lock().await;
        if let Some((token, expires_at)) = current.as_ref()
            && is_fresh(*expires_at, self.now())
        {
            return Ok(token.clone());
        }
        let (token, expires_at) = match &self.origin {
            Origin::Environment(token) => (token.clone(), i64::MAX),
            Origin::ServiceAccount(key) => {
                // The server itself issues service account keys, so it exchanges them, whatever the issuer of users.
                let issuer = Issuer::discover_at(&self.http, &self.server).await?;
                let tokens = issuer.service_account(&self.http, key).await?;
                let client = PublicClient { id: key.id().to_owned(), audience: None };
                let sign_in = SignIn::new(&issuer.issuer, &client, tokens, self.now());
                (sign_in.access_token, sign_in.expires_at)
            }
            Origin::Stored => {
                let sign_in = self.stored().await?;
                (sign_in.access_token, sign_in.expires_at)
            }
        };
        *current = Some((token.clone(), expires_at));
        Ok(token)
    }

    /// The stored sign-in, refreshed when it has expired.
    async fn stored(&self) -> Result<SignIn> {
        match self.credentials.get(&self.server)? {
            Some(sign_in) if sign_in.is_fresh(self.now()) => return Ok(sign_in),
            Some(_) => {}
            None => return Err(self.not_signed_in()),
        }
        let locked = self.credentials.lock().await?;
        // Another process may have refreshed, or signed out, while we waited.
        let sign_in = locked.get(&self.server)?.ok_or_else(|| self.not_signed_in())?;
        if sign_in.is_fresh(self.now()) {
            return Ok(sign_in);
        }
        let Some(refresh_token) = &sign_in.refresh_token else { return Err(self.expired()) };
        let issuer = Issuer::discover(&self.http, &sign_in.issuer).await?;
        let client = sign_in.client();
        match issuer.refresh(&self.http, &client, refresh_token).await {
            Ok(mut tokens) => {
                // An issuer that does not rotate refresh tokens keeps the old one valid.
                tokens.refresh_token = tokens.refresh_token.or_else(|| sign_in.refresh_token.clone());
                let fresh = SignIn::new(&sign_in.issuer, &client, tokens, self.now());
                locked.put(&self.server, fresh.clone())?;
                Ok(fresh)
            }
            Err(error) if error.is_final() => {
                locked.forget(&self.server)?;
                Err(self.expired())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn not_signed_in(&self) -> Failure {
        Failure::new(Exit::Auth, format!("you are not signed in to {}", self.server))
            .suggest("Sign in with `gpuaas auth login`.")
    }

    fn expired(&self) -> Failure {
        Failure::new(Exit::Auth, format!("your sign-in to {} has expired", self.server))
            .suggest("Sign in again with `gpuaas auth login`.")
    }
}

impl TokenSource for Session {
    fn token(&self) -> BoxFuture<'_, std::result::Result<Option<String>, sdk::Error>> {
        Box::pin(async {
            self.current_token().await.map(Some).map_err(|failure| sdk::Error::Auth(failure.message))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server ends a response when the token of its request expires, so a long poll of half a minute must not start
    /// with a token that expires earlier.
    #[tokio::test]
    async fn a_long_run_refreshes_its_token_before_a_long_poll_can_outlive_it() {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::at(directory.path());
        let ambient = Ambient::system();
        let now = ambient.now().timestamp();
        let renewed = SignIn {
            issuer: "https://id.example.org".to_owned(),
            client_id: "gpuaas-cli".to_owned(),
            audience: None,
            access_token: "renewed".to_owned(),
            refresh_token: None,
            expires_at: now + 600,
        };
        credentials.lock().await.unwrap().put("https://gpu.example.org", renewed).unwrap();
        let http = sdk::http_client("test").unwrap();
        let session =
            Session::new("https://gpu.example.org".to_owned(), Origin::Stored, credentials, http, ambient);
        *session.current.lock().await = Some(("first".to_owned(), now + 120));
        assert_eq!(session.current_token().await.ok().as_deref(), Some("first"));
        *session.current.lock().await = Some(("first".to_owned(), now + 35));
        assert_eq!(session.current_token().await.ok().as_deref(), Some("renewed"));
    }

    #[test]
    fn only_an_external_issuer_gets_the_audience() {
        let asked = |issuer| audience_to_ask_for("https://gpu.example.org", issuer, "gpuaas".to_owned());
        assert_eq!(asked("https://gpu.example.org/"), None);
        assert_eq!(asked("https://id.example.org").as_deref(), Some("gpuaas"));
    }
}
