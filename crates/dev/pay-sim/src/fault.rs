//! Refusals, in the shape that clients of the real provider know.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub struct Fault {
    pub status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<String>,
    pub message: String,
}

impl Fault {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, code: None, param: None, message: message.into() }
    }

    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        let fault = Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message);
        Self { param: Some(param.to_owned()), ..fault }
    }

    pub fn missing(param: &str) -> Self {
        Self {
            code: Some("parameter_missing"),
            ..Self::invalid(param, format!("Missing required param: {param}."))
        }
    }

    pub fn code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub fn not_found(what: &str, id: &str) -> Self {
        let fault = Self::invalid("id", format!("No such {what}: '{id}'")).code("resource_missing");
        Self { status: StatusCode::NOT_FOUND, ..fault }
    }

    pub fn no_such_path(method: &str, path: &str) -> Self {
        let message =
            format!("Unrecognized request URL ({method}: {path}); the simulated provider does not have it.");
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message)
    }

    pub fn unauthorized() -> Self {
        let message = "Invalid API Key provided: send the key of the key file as Authorization: Bearer KEY.";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_request_error", message)
    }

    pub fn key_reused() -> Self {
        let message = "This idempotency key was used with another path or other parameters; use a new key.";
        Self::new(StatusCode::BAD_REQUEST, "idempotency_error", message)
    }

    pub fn full() -> Self {
        let message = "The simulated provider keeps no more objects; start it with a new state file.";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "invalid_request_error", message).code("rate_limit")
    }

    pub fn internal(message: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "api_error", message)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut error = Map::new();
        if let Some(code) = self.code {
            error.insert("code".into(), code.into());
        }
        error.insert("message".into(), self.message.into());
        if let Some(param) = self.param {
            error.insert("param".into(), param.into());
        }
        error.insert("type".into(), self.kind.into());
        (self.status, Json(json!({ "error": Value::Object(error) }))).into_response()
    }
}
