//! How the exchange of a service account's key for a token is described in the OpenAPI document. It is a request of OAuth 2.0
//! (RFC 6749, 4.4), which the document has a word for.

use serde_json::{Value, json};

use super::model::SERVICE_TOKEN_LIFE;

/// The security scheme.
pub fn key_exchange_scheme() -> Value {
    let minutes = SERVICE_TOKEN_LIFE.num_minutes();
    let description = format!(
        "The key of a service account is exchanged for a token: POST to `tokenUrl` with \
         `Content-Type: application/x-www-form-urlencoded`, `grant_type=client_credentials`, the id of the key as `client_id` \
         and the key as `client_secret`, in the form or in the Authorization header (Basic). The response is a \
         `ServiceAccountToken`, which is sent as a bearer token and expires after {minutes} minutes at the latest. A refused \
         request is answered with a `TokenError`: 401 `invalid_client` when the key is wrong, revoked or expired or its account \
         is disabled, 400 `invalid_request` when a field is missing, 429 when there were too many requests (wait for the seconds \
         of `Retry-After`). Example: `curl -d grant_type=client_credentials -d client_id=\"$KEY_ID\" \
         -d client_secret=\"$KEY\" https://gpu.example.org/auth/token`"
    );
    json!({
        "type": "oauth2",
        "description": description,
        "flows": { "clientCredentials": { "tokenUrl": "/auth/token", "scopes": {} } },
    })
}

/// What the exchange answers.
pub fn key_exchange_schemas() -> [(&'static str, Value); 2] {
    let token = json!({
        "type": "object",
        "description": "The answer to the exchange of a service account's key.",
        "required": ["access_token", "token_type", "expires_in"],
        "properties": {
            "access_token": { "type": "string", "description": "A JWT for the project of the account." },
            "token_type": { "type": "string", "enum": ["Bearer"] },
            "expires_in": { "type": "integer", "format": "int64", "description": "Seconds until it expires." },
        },
        "example": { "access_token": "eyJ...", "token_type": "Bearer", "expires_in": SERVICE_TOKEN_LIFE.num_seconds() },
    });
    let error = json!({
        "type": "object",
        "description": "Why a request for a token was refused (RFC 6749, 5.2).",
        "required": ["error", "error_description"],
        "properties": {
            "error": {
                "type": "string",
                "description": "`invalid_client`, `invalid_request`, `unsupported_grant_type`, `temporarily_unavailable` or `server_error`.",
            },
            "error_description": { "type": "string" },
        },
        "example": { "error": "invalid_client", "error_description": "The service account's key is not valid." },
    });
    [("ServiceAccountToken", token), ("TokenError", error)]
}
