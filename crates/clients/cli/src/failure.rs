//! Errors of commands: the message, the suggestion, and the exit code.

use std::process::ExitCode;

use sdk::{ApiError, oidc::SignInError};
use serde_json::json;

use crate::{
    args::Format,
    hints,
    output::{self, printable},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command line, a file, or the request itself.
    Client = 1,
    /// The server or the network.
    Server = 2,
    /// Not signed in, or not allowed.
    Auth = 3,
    NotFound = 4,
    Conflict = 5,
    /// No capacity, over quota, or no funds.
    Capacity = 6,
    /// Interrupted by the user (128 + SIGINT, as in a shell).
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    pub code: Option<String>,
    pub suggestion: Option<String>,
    pub correlation_id: Option<String>,
}

pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), code: None, suggestion: None, correlation_id: None }
    }

    pub fn client(message: impl Into<String>) -> Self {
        Self::new(Exit::Client, message)
    }

    pub fn suggest(mut self, text: impl Into<String>) -> Self {
        self.suggestion = Some(text.into());
        self
    }

    /// On standard error, as text or as one JSON object.
    pub fn print(&self, format: Format) {
        if matches!(format, Format::Json | Format::Yaml) {
            let error = json!({ "error": {
                "code": self.code, "message": self.message, "suggestion": self.suggestion,
                "correlation_id": self.correlation_id, "exit_code": self.exit as u8,
            } });
            output::error_line(&error.to_string());
            return;
        }
        let code = self.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
        output::error_line(&output::wrapped(&printable(&format!("error: {}{code}", self.message)), ""));
        if let Some(suggestion) = &self.suggestion {
            for line in printable(suggestion).lines() {
                output::error_line(&output::wrapped(line.trim_start(), "  "));
            }
        }
        if let Some(id) = &self.correlation_id {
            output::error_line(&format!("  correlation id: {}", printable(id)));
        }
    }
}

/// Something on this machine failed while doing `what`.
pub fn local<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> Failure {
    move |error| Failure::client(format!("{what}: {error}"))
}

fn exit_of(status: u16, code: &str) -> Exit {
    match (status, code) {
        (402, _) | (409, "capacity_unavailable" | "sku_unavailable") | (429, "quota_exceeded") => {
            Exit::Capacity
        }
        (401 | 403, _) => Exit::Auth,
        (404, _) => Exit::NotFound,
        (409, _) => Exit::Conflict,
        (429 | 500.., _) => Exit::Server,
        // For example a redirect: not a response of this API.
        (..=399, _) => Exit::Server,
        _ => Exit::Client,
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let suggestion = hints::suggestion(&error);
        Self {
            exit: exit_of(error.status, &error.code),
            message: error.message,
            code: Some(error.code),
            suggestion,
            correlation_id: Some(error.correlation_id).filter(|id| !id.is_empty()),
        }
    }
}

impl From<sdk::Error> for Failure {
    fn from(error: sdk::Error) -> Self {
        let cause = error.cause();
        match error {
            sdk::Error::Api(error) => Self::from(*error),
            sdk::Error::Network(_) => {
                let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                Self::new(Exit::Server, format!("the server cannot be reached{cause}")).suggest(
                    "Check the address with `gpuaas context show`, and the connection with `gpuaas doctor`.",
                )
            }
            sdk::Error::Auth(message) => Self::new(Exit::Auth, message),
            sdk::Error::Request(message) => Self::client(message),
            sdk::Error::Protocol(message) => Self::new(Exit::Server, message),
        }
    }
}

impl From<SignInError> for Failure {
    fn from(error: SignInError) -> Self {
        let exit = match &error {
            SignInError::Network(_) | SignInError::Issuer { .. } => Exit::Server,
            SignInError::Refused { .. } | SignInError::TimedOut | SignInError::Unusable(_) => Exit::Auth,
        };
        let cause = match &error {
            SignInError::Network(cause) => format!(": {cause}"),
            _ => String::new(),
        };
        Self::new(exit, format!("{error}{cause}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_catalog_has_the_exit_code_of_its_kind() {
        for code in kernel::Code::ALL {
            let expected = match code.as_str() {
                "insufficient_balance" | "quota_exceeded" | "capacity_unavailable" | "sku_unavailable" => {
                    Exit::Capacity
                }
                "not_found" => Exit::NotFound,
                "conflict" | "invalid_transition" | "already_exists" | "in_use" => Exit::Conflict,
                "token_missing"
                | "token_invalid"
                | "token_expired"
                | "token_revoked"
                | "insufficient_permissions"
                | "admin_required"
                | "ownership_required"
                | "step_up_required"
                | "tenant_suspended" => Exit::Auth,
                "rate_limit_exceeded"
                | "internal_error"
                | "service_unavailable"
                | "upstream_error"
                | "restore_pending" => Exit::Server,
                _ => Exit::Client,
            };
            assert_eq!(exit_of(code.status(), code.as_str()), expected, "{}", code.as_str());
        }
    }
}
