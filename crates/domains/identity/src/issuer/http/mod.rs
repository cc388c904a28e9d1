//! The issuer's routes. Pages are rendered here, need no script, and load nothing from anywhere.

mod authorize;
mod cx;
mod device;
mod documents;
mod flow;
mod invitation;
mod password;
mod sign_in;
mod sign_up;
mod token;

use std::time::Duration;

use axum::{
    Router,
    extract::Request,
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use pages as page;

use super::Issuer;

const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn router(issuer: Issuer) -> Router {
    let mut router = Router::new()
        .route("/.well-known/openid-configuration", get(documents::discovery))
        .route("/auth/jwks", get(documents::jwks))
        .route("/auth/invitation", get(invitation::form))
        .route("/auth/token", post(token::token));
    if issuer.0.config.people {
        router = router
            .route("/auth/authorize", get(authorize::authorize).post(authorize::authorize))
            .route("/auth/login", get(sign_in::form).post(sign_in::submit))
            .route("/auth/logout", get(sign_in::logout_form).post(sign_in::logout_submit))
            .route("/auth/password", get(password::form).post(password::submit))
            .route("/auth/signup", get(sign_up::form).post(sign_up::submit))
            .route("/auth/invitation", post(invitation::submit))
            .route("/auth/device", get(device::form).post(device::submit))
            .route("/auth/device_authorization", post(device::authorization))
            .route("/auth/userinfo", get(documents::userinfo).post(documents::userinfo))
            .route("/auth/revoke", post(token::revoke));
    }
    router.layer(middleware::from_fn(guard)).with_state(issuer)
}

/// Bounds the time, and says to browsers and caches what holds for everything here.
async fn guard(request: Request, next: Next) -> Response {
    let answered = tokio::time::timeout(TIMEOUT, next.run(request)).await;
    let mut response = answered
        .unwrap_or_else(|_| (StatusCode::SERVICE_UNAVAILABLE, "The request timed out.\n").into_response());
    let fixed = [
        (header::CACHE_CONTROL, "no-store"),
        (header::PRAGMA, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        if !response.headers().contains_key(&name) {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
    }
    response
}
