//! The public error: what a client may know of a failure. One type in the code, one page in the docs.
//!
//! Codes are additive and never change meaning. Anything internal becomes `internal_error`, whose cause
//! is logged once at the boundary with the correlation id that the client gets.

use std::{borrow::Cow, fmt, panic::Location};

use serde_json::{Map, Value, json};

macro_rules! catalog {
    ($($variant:ident, $code:literal, $status:literal, $meaning:literal, $suggestion:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($variant),* }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$variant),*];
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $code),* } }
            pub const fn status(self) -> u16 { match self { $(Self::$variant => $status),* } }
            pub const fn meaning(self) -> &'static str { match self { $(Self::$variant => $meaning),* } }
            pub const fn suggestion(self) -> &'static str { match self { $(Self::$variant => $suggestion),* } }
        }
    };
}

catalog! {
    ValidationError, "validation_error", 400, "A field of the request is missing or invalid.", "Correct the fields named in details.fields and send the request again.";
    InvalidRequest, "invalid_request", 400, "The request is malformed.", "Compare the request with the API document at /api/v1/openapi.json.";
    IdempotencyKeyRequired, "idempotency_key_required", 400, "This operation moves money or capacity and needs an idempotency key.", "Send X-Idempotency-Key with a new UUID, and the same key when you retry.";
    IdempotencyKeyReused, "idempotency_key_reused", 400, "The idempotency key was used before with another request.", "Use a new key for a new request.";
    TokenMissing, "token_missing", 401, "No bearer token was sent.", "Sign in (gpuaas auth login) and send Authorization: Bearer <token>.";
    TokenInvalid, "token_invalid", 401, "The bearer token is not valid for this service.", "Sign in again.";
    TokenExpired, "token_expired", 401, "The bearer token has expired.", "Refresh the token or sign in again.";
    TokenRevoked, "token_revoked", 401, "The session or key behind the token was revoked.", "Sign in again, or ask an administrator for a new key.";
    InsufficientBalance, "insufficient_balance", 402, "The balance does not cover the operation.", "Top up the balance.";
    InsufficientPermissions, "insufficient_permissions", 403, "Your role does not allow the operation.", "Ask an owner or admin of the organization for a role that includes it.";
    AdminRequired, "admin_required", 403, "The operation needs a platform role.", "Ask a platform administrator.";
    OwnershipRequired, "ownership_required", 403, "Only the owner may do this.", "Ask the owner.";
    StepUpRequired, "step_up_required", 403, "The operation needs a fresh sign-in.", "Sign in again and repeat within five minutes.";
    TenantSuspended, "tenant_suspended", 403, "The organization is suspended and read-only.", "Contact the platform's operators.";
    NotFound, "not_found", 404, "The resource does not exist, or you are not allowed to see it.", "Check the id, the project and the organization.";
    MethodNotAllowed, "method_not_allowed", 405, "The path exists, but not with this method.", "Use one of the methods in the Allow header.";
    Conflict, "conflict", 409, "The resource was changed by another request.", "Read the current version and retry the change.";
    InvalidTransition, "invalid_transition", 409, "The state of the resource does not allow the operation.", "Check the state of the resource.";
    AlreadyExists, "already_exists", 409, "A resource with this name or content already exists.", "Choose another name, or use the existing one.";
    InUse, "in_use", 409, "Other resources still depend on the resource.", "Remove the dependent resources first.";
    PayloadTooLarge, "payload_too_large", 413, "The request body is larger than the operation accepts.", "Send a smaller body; the limit is in details.limit_bytes.";
    UnsupportedMediaType, "unsupported_media_type", 415, "The operation does not accept this content type.", "Send Content-Type: application/json.";
    Unprocessable, "unprocessable", 422, "The request is well formed but cannot be processed.", "See the message for the reason.";
    RateLimitExceeded, "rate_limit_exceeded", 429, "Too many requests.", "Retry after the time in Retry-After.";
    QuotaExceeded, "quota_exceeded", 429, "The operation would exceed a quota.", "Release allocations, or ask for a higher quota.";
    InternalError, "internal_error", 500, "Internal error; the service logged the cause with the correlation id.", "Retry; if it fails again, give the correlation id to the operators.";
    ServiceUnavailable, "service_unavailable", 503, "The service is temporarily unavailable.", "Retry after the time in Retry-After.";
    RestorePending, "restore_pending", 503, "The platform was restored from a backup: nothing is launched, released or charged until operators have compared its records with the nodes.", "Wait for the operators, who use `gpuaas ops restore status` and `gpuaas ops restore resume`.";
    UpstreamError, "upstream_error", 503, "An upstream service failed.", "Retry later.";
    CapacityUnavailable, "capacity_unavailable", 409, "No capacity of the requested kind is available.", "Try another size or region, or wait.";
    SkuUnavailable, "sku_unavailable", 409, "The product is not available; the reason is in details.reason.", "Choose another product.";
}

#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub code: Code,
    pub message: Cow<'static, str>,
    pub details: Map<String, Value>,
    pub suggestion: Option<Cow<'static, str>>,
    pub retry_after_seconds: Option<u64>,
}

impl Problem {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Map::new(),
            suggestion: None,
            retry_after_seconds: None,
        }
    }

    /// A problem with the catalog's meaning as its message.
    pub fn from_code(code: Code) -> Self {
        Self::new(code, code.meaning())
    }

    pub fn not_found(kind: &'static str) -> Self {
        Self::new(Code::NotFound, format!("No such {kind}.")).detail("kind", kind)
    }

    pub fn field(path: impl Into<String>, message: impl fmt::Display) -> Self {
        let (path, message) = (path.into(), message.to_string());
        let text = if path.is_empty() { message.clone() } else { format!("{path}: {message}") };
        Self::new(Code::ValidationError, text)
            .detail("fields", json!([{ "field": path, "message": message }]))
    }

    /// A lost race: the current version tells the caller what to read again.
    pub fn version_conflict(current: i64) -> Self {
        Self::from_code(Code::Conflict).detail("current_version", current)
    }

    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    pub fn suggest(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.suggestion = Some(text.into());
        self
    }

    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// The envelope that every error answer has.
    pub fn envelope(&self, correlation_id: crate::CorrelationId) -> Value {
        let suggestion = self.suggestion.as_deref().unwrap_or(self.code.suggestion());
        json!({ "error": {
            "code": self.code.as_str(),
            "message": self.message,
            "correlation_id": correlation_id.to_string(),
            "details": self.details,
            "suggestion": suggestion,
        }})
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

/// A broken invariant, with the source location that detected it.
#[derive(Clone, Debug)]
pub struct Bug {
    pub message: Cow<'static, str>,
    pub place: &'static Location<'static>,
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.message, self.place.file(), self.place.line())
    }
}

/// How a use case fails: with something the client may know, or with something only the log may.
///
/// Any error converts with `?` and stays internal; only a [`Problem`] is ever shown. None of the types
/// implements `Error`, which is what keeps the conversions apart.
pub enum Failure {
    Problem(Problem),
    /// A dependency failed: the database, the network, a file. A retry may succeed.
    Internal(Box<dyn std::error::Error + Send + Sync>),
    /// Our own code is wrong. Counted, logged with its place, and never retried as if it could pass.
    Bug(Bug),
}

impl Failure {
    #[track_caller]
    pub fn bug(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Bug(Bug { message: message.into(), place: Location::caller() })
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Internal(Box::new(error))
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(problem) => fmt::Display::fmt(problem, f),
            Self::Internal(error) => write!(f, "internal: {error:?}"),
            Self::Bug(bug) => write!(f, "bug: {bug}"),
        }
    }
}

/// The catalog as the page in the docs.
pub fn catalog_markdown() -> String {
    let mut out = String::from(
        "# Error catalog\n\nGenerated from `kernel::problem`; do not edit. Codes are additive and never change meaning.\n\n\
         | status | code | meaning | what to do |\n| --- | --- | --- | --- |\n",
    );
    for code in Code::ALL {
        out += &format!(
            "| {} | `{}` | {} | {} |\n",
            code.status(),
            code.as_str(),
            code.meaning(),
            code.suggestion()
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_their_statuses_are_errors() {
        let mut seen = std::collections::BTreeSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()), "{} twice", code.as_str());
            assert!((400..600).contains(&code.status()));
            assert!(!code.meaning().is_empty() && !code.suggestion().is_empty());
        }
    }
}
