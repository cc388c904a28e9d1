//! What can go wrong, in terms a program can act on.

use std::{error::Error as _, fmt};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

/// A refusal by the service, as its error envelope says it.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub status: u16,
    pub code: String,
    pub message: String,
    pub suggestion: String,
    pub correlation_id: String,
    pub details: Value,
    pub retry_after_seconds: Option<u64>,
}

impl ApiError {
    /// Reads an envelope; a body that is none still gives an error with the status.
    pub fn read(status: u16, headers: &HeaderMap, body: &Value) -> Self {
        let error = &body["error"];
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        let header = |name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (mut code, mut message, mut correlation_id) =
            (text("code"), text("message"), text("correlation_id"));
        if code.is_empty() {
            code = format!("http_{status}");
            message = "The response is not one of this API; check the server address.".to_owned();
        }
        if correlation_id.is_empty() {
            correlation_id = header("x-correlation-id");
        }
        Self {
            status,
            code,
            message,
            suggestion: text("suggestion"),
            correlation_id,
            details: error["details"].clone(),
            retry_after_seconds: retry_after_seconds(headers),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

pub(crate) fn retry_after_seconds(headers: &HeaderMap) -> Option<u64> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service said no.
    #[error("{0}")]
    Api(Box<ApiError>),
    /// No answer, or half of one.
    #[error("the server cannot be reached")]
    Network(#[source] reqwest::Error),
    /// There is no token to send, or it could not be renewed.
    #[error("{0}")]
    Auth(String),
    /// The request cannot be right; nothing was sent.
    #[error("{0}")]
    Request(String),
    /// An answer that the contract does not know.
    #[error("{0}")]
    Protocol(String),
}

impl Error {
    /// The innermost cause of a network failure, which says most.
    pub fn cause(&self) -> Option<String> {
        let mut cause = self.source()?;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        Some(cause.to_string())
    }
}

impl<E: serde::Serialize> From<progenitor_client::Error<E>> for Error {
    fn from(error: progenitor_client::Error<E>) -> Self {
        use progenitor_client::Error as Generated;
        match error {
            // Only the hooks of `Transport` make these, and only when there is no token.
            Generated::Custom(message) => Self::Auth(message),
            Generated::InvalidRequest(message) => Self::Request(message),
            Generated::CommunicationError(e)
            | Generated::InvalidUpgrade(e)
            | Generated::ResponseBodyError(e) => Self::Network(e),
            Generated::ErrorResponse(response) => {
                let (status, headers) = (response.status().as_u16(), response.headers().clone());
                let body = serde_json::to_value(response.into_inner()).unwrap_or_default();
                Self::Api(Box::new(ApiError::read(status, &headers, &body)))
            }
            Generated::UnexpectedResponse(response) => Self::Api(Box::new(ApiError::read(
                response.status().as_u16(),
                response.headers(),
                &Value::Null,
            ))),
            Generated::InvalidResponsePayload(_, error) => {
                Self::Protocol(format!("the response does not match the API contract: {error}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_envelope_is_read_whole() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "7".parse().unwrap());
        let body = json!({ "error": {
            "code": "conflict", "message": "Changed.", "correlation_id": "c-1",
            "details": { "current_version": 3 }, "suggestion": "Read it again.",
        }});
        let error = ApiError::read(409, &headers, &body);
        assert_eq!(error.to_string(), "Changed. (conflict)");
        assert_eq!(
            (error.suggestion.as_str(), error.retry_after_seconds, &error.details["current_version"]),
            ("Read it again.", Some(7), &json!(3))
        );
    }

    #[test]
    fn an_answer_from_something_else_is_an_error_with_its_status() {
        let error = ApiError::read(502, &HeaderMap::new(), &Value::Null);
        assert_eq!((error.status, error.code.as_str()), (502, "http_502"));
    }
}
