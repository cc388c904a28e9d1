//! What to do about an error of the API, in the language of the command line.
//!
//! The service speaks to programs: of requests, headers and fields. Here it is commands and options. What the service
//! says about the case at hand speaks of commands already and is kept; what its catalog says about every error of a code is
//! replaced, by the code.

use kernel::Code;
use sdk::ApiError;

/// The suggestion for a person at a terminal.
pub fn suggestion(error: &ApiError) -> Option<String> {
    let code = Code::ALL.iter().copied().find(|code| code.as_str() == error.code);
    let general =
        code.is_some_and(|code| code.suggestion() == error.suggestion) || error.suggestion.is_empty();
    let fields = fields(error);
    let mut text = match code {
        Some(Code::ValidationError) if !fields.is_empty() => format!("Correct {}.", fields.join(", ")),
        Some(code) if general => hint(code).to_owned(),
        _ => error.suggestion.clone(),
    };
    if let Some(seconds) = error.retry_after_seconds {
        text = format!("{text} Retry after {seconds} s.").trim().to_owned();
    }
    Some(text).filter(|text| !text.is_empty())
}

/// The options that a refusal names: `gpu_counts` is `--gpu-counts`.
fn fields(error: &ApiError) -> Vec<String> {
    let named = error.details["fields"].as_array().into_iter().flatten();
    let named = named.filter_map(|field| field["field"].as_str());
    named.map(option).collect()
}

fn option(field: &str) -> String {
    let plain =
        !field.is_empty() && field.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !plain {
        return field.to_owned();
    }
    // Amounts are given in units of the currency, not in its smallest unit.
    let name = field.strip_suffix("_minor").unwrap_or(field);
    format!("--{}", name.strip_suffix("_id").unwrap_or(name).replace('_', "-"))
}

fn hint(code: Code) -> &'static str {
    match code {
        Code::ValidationError => "Check the arguments; `--help` describes them.",
        Code::InvalidRequest | Code::MethodNotAllowed | Code::UnsupportedMediaType => {
            "The program and the server may be of different versions: compare with `gpuaas --version` and `gpuaas doctor`."
        }
        Code::IdempotencyKeyRequired | Code::IdempotencyKeyReused => {
            "Leave out --idempotency-key, or give a new one for a new request."
        }
        Code::TokenMissing | Code::TokenInvalid | Code::TokenExpired | Code::TokenRevoked => {
            "Sign in with `gpuaas auth login`."
        }
        Code::StepUpRequired => "Sign in again with `gpuaas auth login`, and repeat within five minutes.",
        Code::InsufficientBalance => {
            "Top up with `gpuaas billing topup AMOUNT`; `gpuaas billing balance` shows what is left."
        }
        Code::NotFound => {
            "Check the name, and --project and --org: `gpuaas context show` shows the current ones."
        }
        Code::Conflict => "Somebody changed it meanwhile: look at it again and repeat the command.",
        Code::InvalidTransition => "Look at its state with `show`.",
        Code::PayloadTooLarge => "Send less at once.",
        Code::RateLimitExceeded => "Too many requests were sent: wait and repeat the command.",
        Code::QuotaExceeded => {
            "Release a machine with `gpuaas rm NAME`, or ask for a higher limit: `gpuaas policy list` shows the limits."
        }
        Code::ServiceUnavailable | Code::UpstreamError => {
            "Repeat the command in a moment; `gpuaas doctor` checks the server."
        }
        other => other.suggestion(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn error(code: &str, suggestion: &str, details: Value) -> ApiError {
        ApiError {
            status: 400,
            code: code.to_owned(),
            message: String::new(),
            suggestion: suggestion.to_owned(),
            correlation_id: String::new(),
            details,
            retry_after_seconds: None,
        }
    }

    const OF_REQUESTS: &[&str] =
        &["/api/", "details.", "POST ", "Authorization", "X-Idempotency-Key", "Retry-After", "Content-Type"];

    #[test]
    fn no_hint_speaks_of_requests() {
        for code in Code::ALL {
            let text = suggestion(&error(code.as_str(), code.suggestion(), Value::Null)).unwrap_or_default();
            assert!(!OF_REQUESTS.iter().any(|mark| text.contains(mark)), "{}: {text}", code.as_str());
        }
    }

    #[test]
    fn fields_are_named_as_options() {
        let details = json!({ "fields": [{ "field": "amount_minor" }, { "field": "pool_id" }, { "field": "items[0].kind" }] });
        let text = suggestion(&error("validation_error", "anything", details)).unwrap();
        assert_eq!(text, "Correct --amount, --pool, items[0].kind.");
    }

    #[test]
    fn what_the_service_says_about_the_case_is_kept() {
        let text = suggestion(&error("in_use", "Delete its service accounts first.", Value::Null)).unwrap();
        assert_eq!(text, "Delete its service accounts first.");
        let general = Code::InsufficientBalance.suggestion();
        let text = suggestion(&error("insufficient_balance", general, Value::Null)).unwrap();
        assert!(text.contains("gpuaas billing topup"), "{text}");
    }
}
