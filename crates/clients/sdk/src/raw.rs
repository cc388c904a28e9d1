//! Requests by path, for what has no typed form: the last resort, and streams.

use progenitor_client::ClientInfo as _;
use reqwest::{
    Method, Response,
    header::{HeaderName, HeaderValue},
};
use serde_json::Value;

use crate::{ApiError, Error, generated::Client};

/// A request by path.
#[derive(Clone, Debug)]
pub struct RawRequest {
    pub method: Method,
    /// From the root: `/api/v1/…`.
    pub path: String,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Option<Value>,
}

impl RawRequest {
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), headers: Vec::new(), body: None }
    }
}

impl Client {
    /// Sends with token, idempotency key and retries like any other request; an error answer is an error.
    pub async fn raw(&self, request: RawRequest) -> Result<Response, Error> {
        if !request.path.starts_with('/') {
            return Err(Error::Request(format!("the path must start with /, as in /api/v1{}", request.path)));
        }
        let url = format!("{}{}", self.baseurl().trim_end_matches('/'), request.path);
        let mut builder = self.client().request(request.method, url);
        for (name, value) in request.headers {
            builder = builder.header(name, value);
        }
        if let Some(body) = &request.body {
            builder = builder.json(body);
        }
        let mut built = builder.build().map_err(|error| Error::Request(error.to_string()))?;
        self.inner().prepare(&mut built).await?;
        let response = self.inner().execute(built).await.map_err(Error::Network)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await.map_err(Error::Network)?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Err(Error::Api(Box::new(ApiError::read(status, &headers, &body))))
    }
}
