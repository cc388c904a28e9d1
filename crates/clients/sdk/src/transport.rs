//! How requests are sent: token, idempotency key, retries.
//!
//! A mutating request gets an idempotency key unless it has one, once, before its first attempt; every retry
//! carries the same key, so it has one effect however often it is sent. Retried are failures to get an answer,
//! 503, and what the service itself asks to repeat soon (409 and 429 with `Retry-After`): three times at
//! most, with growing, jittered pauses.

use std::{sync::Arc, time::Duration};

use progenitor_client::{ClientHooks, ClientInfo as _, OperationInfo};
use reqwest::{
    Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
};

use crate::{Error, TokenSource, auth::Tokens, error::retry_after_seconds, generated::Client, random};

pub const IDEMPOTENCY_KEY: &str = "x-idempotency-key";

const RETRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Asked to wait longer than this, we say so instead of waiting.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What the generated client carries along.
#[derive(Clone, Debug)]
pub struct Transport {
    http: reqwest::Client,
    tokens: Tokens,
    /// What the caller asked every request of this client to carry (see `headers`).
    pub(crate) headers: HeaderMap,
    /// Called before a pause that the service asked for.
    pub(crate) on_wait: Option<fn(Duration)>,
}

impl Transport {
    pub(crate) fn new(http: reqwest::Client, tokens: Arc<dyn TokenSource>) -> Self {
        Self { http, tokens: Tokens(tokens), headers: HeaderMap::new(), on_wait: None }
    }

    /// Adds what every request needs.
    pub(crate) async fn prepare(&self, request: &mut Request) -> Result<(), Error> {
        if let Some(token) = self.tokens.0.token().await? {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| Error::Auth("the token contains invalid characters".to_owned()))?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        for (name, value) in &self.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
        if !reads && !request.headers().contains_key(IDEMPOTENCY_KEY) {
            let key = HeaderValue::from_str(&random::idempotency_key())
                .map_err(|_| Error::Request("no idempotency key could be generated".to_owned()))?;
            request.headers_mut().insert(IDEMPOTENCY_KEY, key);
        }
        Ok(())
    }

    /// Sends a prepared request, with retries.
    pub(crate) async fn execute(&self, mut request: Request) -> reqwest::Result<Response> {
        for attempt in 0..RETRIES {
            let Some(again) = request.try_clone() else { break };
            let outcome = self.http.execute(request).await;
            let Some(pause) = pause_before_retry(&outcome, attempt) else { return outcome };
            if let (Some(on_wait), Ok(response)) = (self.on_wait, &outcome)
                && response.status() == StatusCode::TOO_MANY_REQUESTS
            {
                on_wait(pause);
            }
            tokio::time::sleep(pause).await;
            request = again;
        }
        self.http.execute(request).await
    }
}

fn pause_before_retry(outcome: &reqwest::Result<Response>, attempt: u32) -> Option<Duration> {
    let asked = match outcome {
        Ok(response) => {
            let asked = retry_after_seconds(response.headers()).map(Duration::from_secs);
            match response.status() {
                StatusCode::SERVICE_UNAVAILABLE => asked,
                StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => Some(asked?),
                _ => return None,
            }
        }
        Err(error) if error.is_builder() => return None,
        Err(_) => None,
    };
    if asked.is_some_and(|asked| asked > LONGEST_PAUSE) {
        return None;
    }
    let pause = FIRST_PAUSE * 3u32.pow(attempt);
    let jitter = pause.mul_f64(f64::from(random::bytes::<1>()[0]) / 512.0);
    Some(asked.unwrap_or_default().max(pause + jitter))
}

impl ClientHooks<Transport> for Client {
    async fn pre<E>(
        &self,
        request: &mut Request,
        _: &OperationInfo,
    ) -> Result<(), progenitor_client::Error<E>> {
        self.inner()
            .prepare(request)
            .await
            .map_err(|error| progenitor_client::Error::Custom(error.to_string()))
    }

    async fn exec(&self, request: Request, _: &OperationInfo) -> reqwest::Result<Response> {
        self.inner().execute(request).await
    }
}
