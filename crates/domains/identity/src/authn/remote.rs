//! The keys of an external issuer: discovery, then its JWKS, kept and refreshed.
//!
//! Keys are refreshed every five minutes while they are used, behind the requests that use them; an
//! unknown `kid` refreshes at once, but not more often than every ten seconds, and by one request at a
//! time. When the issuer cannot be reached the keys we have keep serving.

use std::{
    sync::{Arc, RwLock},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::Algorithm;
use kernel::{Ambient, Code, Failure, Problem};
use serde_json::Value;

use super::jwks::{KeySet, VerifyingKey};

const REFRESH_AFTER: TimeDelta = TimeDelta::minutes(5);
/// Keys not refreshed for this long are refreshed before use rather than after it.
const STALE_AFTER: TimeDelta = TimeDelta::hours(1);
const FLOOR: TimeDelta = TimeDelta::seconds(10);
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const LARGEST_DOCUMENT_BYTES: usize = 256 * 1024;

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("the issuer's {0} cannot be fetched; check the address and the network")]
    Http(&'static str, #[source] reqwest::Error),
    #[error("the issuer's {0} did not come within {1:?}")]
    Slow(&'static str, Duration),
    #[error("the issuer's {0} is not the JSON document that was expected: {1}")]
    Document(&'static str, &'static str),
}

#[derive(Default)]
struct State {
    keys: Arc<KeySet>,
    loaded_at: Option<DateTime<Utc>>,
    tried_at: Option<DateTime<Utc>>,
}

pub struct RemoteKeys {
    issuer: String,
    http: reqwest::Client,
    ambient: Ambient,
    state: RwLock<State>,
    /// Held by whoever refreshes.
    refreshing: tokio::sync::Mutex<()>,
}

impl RemoteKeys {
    /// `http` should follow few redirects and speak to nothing but what the operator configured.
    pub fn new(issuer: impl Into<String>, http: reqwest::Client, ambient: Ambient) -> Arc<Self> {
        Arc::new(Self {
            issuer: issuer.into(),
            http,
            ambient,
            state: RwLock::default(),
            refreshing: tokio::sync::Mutex::new(()),
        })
    }

    pub(super) async fn find(
        self: &Arc<Self>,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Option<Arc<VerifyingKey>>, Failure> {
        let (keys, loaded_at) = self.current();
        let age = loaded_at.map(|at| self.ambient.now() - at);
        if let (Some(key), Some(age)) = (keys.find(kid, algorithm), age) {
            if age < REFRESH_AFTER {
                return Ok(Some(key));
            }
            if age < STALE_AFTER {
                let this = self.clone();
                tokio::spawn(async move { this.refresh().await });
                return Ok(Some(key));
            }
        }
        self.refresh().await;
        let (keys, loaded_at) = self.current();
        match (keys.find(kid, algorithm), loaded_at) {
            (Some(key), _) => Ok(Some(key)),
            (None, Some(_)) => Ok(None),
            (None, None) => {
                Err(Problem::new(Code::UpstreamError, "The identity provider cannot be reached.")
                    .retry_after(FLOOR.num_seconds().unsigned_abs())
                    .into())
            }
        }
    }

    fn current(&self) -> (Arc<KeySet>, Option<DateTime<Utc>>) {
        let state = self.state.read().unwrap_or_else(|e| e.into_inner());
        (state.keys.clone(), state.loaded_at)
    }

    /// Fetches the keys unless somebody did so just now; whoever comes meanwhile waits for the result.
    async fn refresh(&self) {
        let _one_at_a_time = self.refreshing.lock().await;
        let now = self.ambient.now();
        {
            let mut state = self.state.write().unwrap_or_else(|e| e.into_inner());
            if state.tried_at.is_some_and(|at| at <= now && now - at < FLOOR) {
                return;
            }
            state.tried_at = Some(now);
        }
        match self.fetch().await {
            Ok(keys) => {
                let mut state = self.state.write().unwrap_or_else(|e| e.into_inner());
                state.keys = Arc::new(keys);
                state.loaded_at = Some(now);
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::warn!(issuer = %self.issuer, error = %error, cause, "keys could not be refreshed; using the cached ones");
            }
        }
    }

    async fn fetch(&self) -> Result<KeySet, FetchError> {
        const DISCOVERY: &str = "discovery document";
        let address = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let discovery = self.json(DISCOVERY, &address).await?;
        if discovery.get("issuer").and_then(Value::as_str) != Some(self.issuer.as_str()) {
            return Err(FetchError::Document(DISCOVERY, "its issuer is not the configured one"));
        }
        let jwks_uri = discovery.get("jwks_uri").and_then(Value::as_str).unwrap_or_default();
        if !jwks_uri.starts_with("https://") && self.issuer.starts_with("https://") {
            return Err(FetchError::Document(DISCOVERY, "its jwks_uri is not an https address"));
        }
        let document = self.json("JWKS", jwks_uri).await?;
        match KeySet::parse(&document) {
            Some(keys) if !keys.is_empty() => Ok(keys),
            _ => Err(FetchError::Document("JWKS", "it contains no usable signature key")),
        }
    }

    async fn json(&self, what: &'static str, address: &str) -> Result<Value, FetchError> {
        let fetch = async {
            let mut response = self.http.get(address).send().await?.error_for_status()?;
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await? {
                body.extend_from_slice(&chunk);
                if body.len() > LARGEST_DOCUMENT_BYTES {
                    return Ok(None);
                }
            }
            Ok(Some(body))
        };
        let body = tokio::time::timeout(FETCH_TIMEOUT, fetch)
            .await
            .map_err(|_| FetchError::Slow(what, FETCH_TIMEOUT))?
            .map_err(|error| FetchError::Http(what, error))?
            .ok_or(FetchError::Document(what, "it is too large"))?;
        serde_json::from_slice(&body).map_err(|_| FetchError::Document(what, "it does not parse"))
    }
}
