//! Discovery, JWKS, userinfo.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use endpoint::{Authenticator as _, Caller};
use http::{HeaderValue, StatusCode, header};
use kernel::Failure;
use serde_json::{Value, json};

use super::cx::{Cx, oauth_error};
use crate::issuer::{Issuer, failure::TokenError};

/// Documents may be kept for a while; readers that meet an unknown key fetch again.
fn cacheable(document: Value) -> Response {
    let mut response = Json(document).into_response();
    let value = HeaderValue::from_static("public, max-age=300");
    response.headers_mut().insert(header::CACHE_CONTROL, value);
    response.headers_mut().insert(header::PRAGMA, HeaderValue::from_static("cache"));
    response
}

pub(super) async fn discovery(State(issuer): State<Issuer>, _: Cx) -> Response {
    let base = &issuer.0.config.public_url;
    let at = |path: &str| format!("{base}/auth/{path}");
    let mut document = json!({
        "issuer": base,
        "jwks_uri": at("jwks"),
        "token_endpoint": at("token"),
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
        "grant_types_supported": ["client_credentials"],
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    });
    if issuer.0.config.people {
        let more = json!({
            "authorization_endpoint": at("authorize"),
            "userinfo_endpoint": at("userinfo"),
            "revocation_endpoint": at("revoke"),
            "end_session_endpoint": at("logout"),
            "device_authorization_endpoint": at("device_authorization"),
            "grant_types_supported": ["authorization_code", "refresh_token",
                "urn:ietf:params:oauth:grant-type:device_code", "client_credentials"],
            "response_modes_supported": ["query"],
            "scopes_supported": ["openid", "profile", "email", "offline_access"],
            "code_challenge_methods_supported": ["S256"],
            "claims_supported": ["iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "sid", "azp", "email",
                "email_verified", "name"],
            "prompt_values_supported": ["none", "login", "select_account"],
            "authorization_response_iss_parameter_supported": true,
            "request_parameter_supported": false,
            "request_uri_parameter_supported": false,
        });
        if let (Some(all), Value::Object(more)) = (document.as_object_mut(), more) {
            all.extend(more);
        }
    }
    cacheable(document)
}

pub(super) async fn jwks(State(issuer): State<Issuer>, _: Cx) -> Result<Response, TokenError> {
    Ok(cacheable(issuer.keys().jwks().await?))
}

pub(super) async fn userinfo(State(issuer): State<Issuer>, cx: Cx) -> Result<Response, TokenError> {
    let refused = || {
        let mut response = oauth_error(StatusCode::UNAUTHORIZED, "invalid_token", "Sign in again.");
        let challenge = HeaderValue::from_static("Bearer error=\"invalid_token\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        response
    };
    let value = cx.headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let bearer = value.and_then(|v| v.split_once(' ')).filter(|(s, _)| s.eq_ignore_ascii_case("bearer"));
    let Some((_, token)) = bearer else { return Ok(refused()) };
    let caller = issuer.0.authn.authenticate(token.trim(), &cx.client).await;
    match caller {
        Ok(Caller::User { .. }) => {}
        Ok(Caller::ServiceAccount { .. }) => return Ok(refused()),
        Err(Failure::Problem(problem)) if problem.code.status() == 401 => return Ok(refused()),
        Err(failure) => return Err(failure.into()),
    }
    let claims = issuer.0.authn.verified(token.trim()).await?.claims.clone();
    let body = json!({
        "sub": claims.sub, "email": claims.email, "email_verified": claims.email_verified, "name": claims.name,
    });
    Ok(Json(body).into_response())
}
