//! A thin JSON client for tests: it shows status, headers and body as they came.

use reqwest::{Method, header::HeaderMap};
use serde_json::Value;

use crate::eventually::note_seen;

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
    pub text: String,
}

impl Answer {
    /// The body, when the status is the expected one.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status, self.body["error"]["code"].as_str()), (status, Some(code)), "{}", self.text);
        self.body
    }

    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }
}

/// One principal's view of one server.
#[derive(Clone)]
pub struct Api {
    pub base: String,
    pub token: Option<String>,
    http: reqwest::Client,
}

impl Api {
    pub fn new(base: &str, token: Option<String>) -> Self {
        let http = crate::http_client().build().expect("HTTP client");
        Self { base: base.to_owned(), token, http }
    }

    /// With a client of one's own, for other roots or a certificate.
    pub fn with_client(base: &str, http: reqwest::Client) -> Self {
        Self { base: base.to_owned(), token: None, http }
    }

    pub fn with_token(&self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self.clone() }
    }

    pub fn at(&self, base: &str) -> Self {
        Self { base: base.to_owned(), ..self.clone() }
    }

    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.expect("the server answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let path = response.url().path().to_owned();
        let text = response.text().await.expect("a body");
        note_seen(|| format!("{path}: {status} {text}"));
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status, headers, body, text }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::POST, path).json(&body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::PUT, path).json(&body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::PATCH, path).json(&body)).await
    }

    /// A POST with an idempotency key.
    pub async fn post_once(&self, key: &str, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::POST, path).header("x-idempotency-key", key).json(&body)).await
    }
}
