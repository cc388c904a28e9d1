//! Requests by path: the wire format below `/v1`, controls below `/sim`, the page below `/c/pay`.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State as Extracted},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    response::{Html, IntoResponse, Response},
};
use subtle::ConstantTimeEq as _;

use crate::{
    api, checkout,
    fault::Fault,
    form::Params,
    page, payments,
    sim::Sim,
    state::{Kind, Object, text},
};

const MAX_BODY: usize = 64 * 1024;
const MAX_KEY: usize = 255;

pub fn router(sim: Arc<Sim>) -> Router {
    Router::new().fallback(handle).layer(DefaultBodyLimit::max(MAX_BODY)).with_state(sim)
}

async fn handle(
    Extracted(sim): Extracted<Arc<Sim>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
    let answer = match path.as_slice() {
        ["healthz"] => return "ok".into_response(),
        ["c", "pay", id, action @ ..] => return page(&sim, &method, id, action, uri.query()),
        ["v1" | "sim", ..] => answer(&sim, &method, &uri, &headers, &path, &body),
        _ => Err(Fault::no_such_path(method.as_str(), uri.path())),
    };
    let mut response = answer.unwrap_or_else(IntoResponse::into_response);
    tracing::debug!(%method, path = uri.path(), status = response.status().as_u16(), "answered");
    let request_id = format!("req_{}", crate::state::random_text(&sim.ambient, 14));
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(HeaderName::from_static("request-id"), value);
    }
    response
}

fn answer(
    sim: &Sim,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    path: &api::Path<'_>,
    body: &[u8],
) -> Result<Response, Fault> {
    // Whoever knows the id of a checkout may pay it, here as on the page.
    let is_open = matches!(path, ["sim", "checkout", _, "pay" | "decline"]);
    if !is_open && !is_authorized(sim, headers) {
        return Err(Fault::unauthorized());
    }
    match *method {
        Method::GET => {
            let params = Params::parse(uri.query().unwrap_or_default().as_bytes())?;
            Ok(Json(api::read(&sim.state(), path, &params)?).into_response())
        }
        Method::POST => {
            let params = Params::parse(body)?;
            let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
            if key.is_some_and(|key| key.is_empty() || key.len() > MAX_KEY) {
                return Err(Fault::invalid(
                    "Idempotency-Key",
                    format!("A key has 1 to {MAX_KEY} characters."),
                ));
            }
            let request = format!("{} {params:?}", uri.path());
            let (made, repeated) =
                sim.change_once(key, &request, |state, context| api::write(state, context, path, &params))?;
            let mut response = Json(made).into_response();
            if repeated {
                let name = HeaderName::from_static("idempotent-replayed");
                response.headers_mut().insert(name, HeaderValue::from_static("true"));
            }
            Ok(response)
        }
        _ => Err(Fault::no_such_path(method.as_str(), uri.path())),
    }
}

fn is_authorized(sim: &Sim, headers: &HeaderMap) -> bool {
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = sent.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    bool::from(key.as_bytes().ct_eq(sim.options.api_key.as_bytes()))
}

/// The page of a checkout and its three buttons.
fn page(sim: &Sim, method: &Method, id: &str, action: &[&str], query: Option<&str>) -> Response {
    let found = sim.state().find(Kind::Session, id).cloned();
    let Ok(session) = found else { return html(StatusCode::NOT_FOUND, page::unknown()) };
    let is_open = text(&session, "status") == "open";
    match (method, action) {
        (&Method::GET, []) if is_open => {
            html(StatusCode::OK, page::checkout(&session, query == Some("declined")))
        }
        (&Method::GET, []) => html(StatusCode::OK, page::ended_session_page(&session)),
        // Going back changes nothing: the checkout stays open until its time is over.
        (&Method::POST, ["cancel"]) => redirect_to(text(&session, "cancel_url")),
        (&Method::POST, ["pay"]) => {
            match sim.change(None, |state, context| payments::pay(state, context, id)) {
                Ok(session) => redirect_to(&return_url(&session)),
                Err(fault) => ended(sim, id, fault),
            }
        }
        (&Method::POST, ["decline"]) => {
            match sim.change(None, |state, context| payments::decline(state, context, id)) {
                Ok(_) => redirect_to(&format!("/c/pay/{id}?declined")),
                Err(fault) => ended(sim, id, fault),
            }
        }
        _ => html(StatusCode::NOT_FOUND, page::unknown()),
    }
}

/// Paid in another window meanwhile, or too late.
fn ended(sim: &Sim, id: &str, fault: Fault) -> Response {
    if fault.status != StatusCode::BAD_REQUEST {
        return fault.into_response();
    }
    let now = sim.change(None, |state, context| {
        checkout::expire_due(state, context)?;
        Ok(state.find(Kind::Session, id)?.clone())
    });
    match now {
        Ok(session) => html(StatusCode::CONFLICT, page::ended_session_page(&session)),
        Err(fault) => fault.into_response(),
    }
}

fn return_url(session: &Object) -> String {
    text(session, "success_url").replace("{CHECKOUT_SESSION_ID}", text(session, "id"))
}

fn redirect_to(url: &str) -> Response {
    match HeaderValue::from_str(url) {
        Ok(url) if !url.is_empty() => (StatusCode::SEE_OTHER, [(header::LOCATION, url)]).into_response(),
        _ => html(StatusCode::NOT_FOUND, page::unknown()),
    }
}

fn html(status: StatusCode, text: String) -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, Html(text)).into_response()
}
