//! A request as the handlers see it: parameters, cookies, where it came from; and the answers to it.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use aws_lc_rs::hmac;
use axum::{
    body::Body,
    extract::{ConnectInfo, FromRequest, Request},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use endpoint::ClientInfo;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use kernel::{CorrelationId, Failure, Secret};
use pg::Origin;
use serde_json::json;

use super::page;
use crate::issuer::{
    Issuer,
    failure::TokenError,
    limits::Budget,
    model::{self, BROWSER_SESSION_LIFE, Client, Refusal},
    sessions::Browser,
};

const BODY_LIMIT_BYTES: usize = 16 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const LONGEST_CONTINUE: usize = 4096;

/// Parameters of a query string or a form; each at most once.
#[derive(Clone, Debug, Default)]
pub(super) struct Params(HashMap<String, String>);

impl Params {
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let pairs: Vec<(String, String)> =
            serde_urlencoded::from_bytes(text).map_err(|_| "The parameters are malformed.")?;
        let mut params = HashMap::with_capacity(pairs.len());
        for (name, value) in pairs {
            // What is not UTF-8 arrives as the replacement character.
            if value.contains(['\0', '\u{fffd}']) {
                return Err("A parameter contains an invalid character.");
            }
            if params.insert(name, value).is_some() {
                return Err("A parameter is given twice.");
            }
        }
        Ok(Self(params))
    }

    /// A parameter without a value counts as not given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub fn secret(&self, name: &str) -> Secret {
        Secret::new(self.text(name).to_owned())
    }

    /// Those of `names` that are given, in that order.
    pub fn only<'a>(&self, names: &[&'a str]) -> Vec<(&'a str, String)> {
        names.iter().filter_map(|name| Some((*name, self.get(name)?.to_owned()))).collect()
    }
}

pub(super) struct Cx {
    pub issuer: Issuer,
    pub query: Params,
    pub form: Params,
    pub origin: Origin,
    pub client: ClientInfo,
    pub headers: HeaderMap,
    csrf_seed: Option<String>,
    pub session_cookie: Option<String>,
}

impl FromRequest<Issuer> for Cx {
    type Rejection = Response;

    async fn from_request(request: Request, issuer: &Issuer) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let wants_json = is_for_programs(parts.uri.path());
        let refuse = |status: StatusCode, text: &'static str| {
            if wants_json { oauth_error(status, "invalid_request", text) } else { page::error(status, text) }
        };
        let client = client_info(&parts);
        let budget = budget(&parts);
        if let Err(seconds) = issuer.0.limits.spend(budget, client.source_ip.as_deref()) {
            let mut response =
                refuse(StatusCode::TOO_MANY_REQUESTS, "Too many requests. Wait some minutes and retry.");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            return Err(response);
        }
        let query = Params::parse(parts.uri.query().unwrap_or_default().as_bytes())
            .map_err(|text| refuse(StatusCode::BAD_REQUEST, text))?;
        let form = read_form(&parts, body).await.map_err(|(status, text)| refuse(status, text))?;
        let text = |name: &str| parts.headers.get(name).and_then(|v| v.to_str().ok());
        let correlation_id = text("x-correlation-id")
            .and_then(CorrelationId::accept)
            .unwrap_or_else(|| CorrelationId(issuer.0.db.ambient().uuid()));
        let traceparent = text("traceparent").filter(|t| t.len() <= 128).map(str::to_owned);
        let secure = issuer.is_secure();
        Ok(Self {
            origin: Origin { correlation_id, source_ip: client.source_ip.clone(), traceparent },
            csrf_seed: cookie(&parts.headers, csrf_cookie(secure)),
            session_cookie: cookie(&parts.headers, session_cookie(secure)),
            issuer: issuer.clone(),
            query,
            form,
            client,
            headers: parts.headers,
        })
    }
}

/// Programs get JSON errors; people get pages.
fn is_for_programs(path: &str) -> bool {
    let people = ["authorize", "login", "logout", "password", "signup", "invitation", "device"];
    !path.strip_prefix("/auth/").is_some_and(|name| people.contains(&name))
}

fn budget(parts: &Parts) -> Budget {
    let path = parts.uri.path();
    // Not `/auth/password`: who is signed in has a budget of their own, and strangers at the address cannot use it up.
    let guesses = ["/auth/login", "/auth/signup", "/auth/invitation", "/auth/device"].contains(&path);
    let typed_code = path == "/auth/device" && parts.uri.query().is_some();
    if (guesses && parts.method == Method::POST) || typed_code { Budget::SignIn } else { Budget::Other }
}

fn client_info(parts: &Parts) -> ClientInfo {
    let address = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let user_agent = parts.headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok());
    ClientInfo {
        source_ip: address.map(|info| info.0.ip().to_canonical().to_string()),
        user_agent: user_agent.map(|t| t.chars().take(200).collect()),
    }
}

async fn read_form(parts: &Parts, body: Body) -> Result<Params, (StatusCode, &'static str)> {
    if parts.method != Method::POST {
        return Ok(Params::default());
    }
    let read = tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, BODY_LIMIT_BYTES)).await;
    let bytes = match read {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err((StatusCode::PAYLOAD_TOO_LARGE, "The form is too large.")),
        Err(_) => return Err((StatusCode::REQUEST_TIMEOUT, "The form was sent too slowly.")),
    };
    if bytes.is_empty() {
        return Ok(Params::default());
    }
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let text = "Send the parameters as application/x-www-form-urlencoded.";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    Params::parse(&bytes).map_err(|text| (StatusCode::BAD_REQUEST, text))
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok());
    let mut pairs = all.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, value)| *key == name && value.len() <= 128).map(|(_, value)| value.to_owned())
}

/// `__Host-` lets no other host and no insecure page set the cookie; it exists only over TLS.
fn session_cookie(secure: bool) -> &'static str {
    if secure { "__Host-gpuaas-session" } else { "gpuaas-session" }
}

fn csrf_cookie(secure: bool) -> &'static str {
    if secure { "__Host-gpuaas-form" } else { "gpuaas-form" }
}

impl Issuer {
    pub(super) fn is_secure(&self) -> bool {
        self.0.config.public_url.starts_with("https://")
    }

    pub(super) fn client(&self, id: &str) -> Option<&Client> {
        self.0.clients.iter().find(|c| c.id == id)
    }
}

impl Cx {
    pub async fn browser(&self) -> Result<Option<Browser>, Failure> {
        self.issuer.browser(self.session_cookie.as_deref()).await
    }

    /// The token of a form is bound to this browser and to who is signed in in it.
    fn csrf_message(&self, seed: &str) -> String {
        format!("{seed}\0{}", self.session_cookie.as_deref().unwrap_or_default())
    }

    /// Whether the form was rendered by us, for this browser.
    pub fn form_is_ours(&self) -> bool {
        let Some(seed) = &self.csrf_seed else { return false };
        let Ok(tag) = BASE64_URL_SAFE_NO_PAD.decode(self.form.text("form_token")) else { return false };
        hmac::verify(&self.issuer.0.csrf_key, self.csrf_message(seed).as_bytes(), &tag).is_ok()
    }

    /// A page, whose forms carry this browser's token.
    pub fn page(&self, status: StatusCode, page: page::Page<'_>) -> Response {
        let fresh = self.csrf_seed.is_none().then(|| hex::encode(self.issuer.0.db.ambient().bytes::<16>()));
        let seed = fresh.as_deref().or(self.csrf_seed.as_deref()).unwrap_or_default();
        let tag = hmac::sign(&self.issuer.0.csrf_key, self.csrf_message(seed).as_bytes());
        let mut response = page.render(status, &BASE64_URL_SAFE_NO_PAD.encode(tag));
        if let Some(seed) = &fresh {
            self.set_cookie(&mut response, csrf_cookie(self.issuer.is_secure()), seed, None);
        }
        response
    }

    pub fn stale_form(&self) -> Response {
        page::error(
            StatusCode::BAD_REQUEST,
            "The form has expired, or cookies are disabled. Go back and try again.",
        )
    }

    /// The redirect after a browser was signed in (a cookie) or out (none).
    pub fn redirect_with_session(&self, to: &str, session: Option<&Secret>) -> Response {
        let mut response = redirect(to);
        let name = session_cookie(self.issuer.is_secure());
        match session {
            Some(cookie) => {
                let life = BROWSER_SESSION_LIFE.num_seconds();
                self.set_cookie(&mut response, name, cookie.expose(), Some(life));
            }
            None => self.set_cookie(&mut response, name, "", Some(0)),
        }
        response
    }

    fn set_cookie(&self, response: &mut Response, name: &str, value: &str, life_seconds: Option<i64>) {
        let secure = if self.issuer.is_secure() { "; Secure" } else { "" };
        let life = life_seconds.map(|s| format!("; Max-Age={s}")).unwrap_or_default();
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{life}");
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(header::SET_COOKIE, value);
        }
    }

    /// Where to go after signing in: only to pages of our own that continue a flow.
    pub fn continue_to(&self) -> Option<&str> {
        let wanted = self.form.get("continue").or(self.query.get("continue"))?;
        is_continuation(wanted).then_some(wanted)
    }

    /// The origin that the flow in `continue` ends at: forms must be allowed to lead there.
    pub fn continue_origin(&self) -> Option<String> {
        let query = self.continue_to()?.strip_prefix("/auth/authorize?")?;
        let params = Params::parse(query.as_bytes()).ok()?;
        let client = self.issuer.client(params.text("client_id"))?;
        let uri = params.get("redirect_uri").filter(|uri| client.may_redirect_to(uri))?;
        model::origin_of(uri)
    }
}

fn is_continuation(text: &str) -> bool {
    let known = ["/auth/authorize?", "/auth/device?", "/auth/password?", "/auth/invitation?"];
    let exact = ["/auth/device", "/auth/password"];
    text.len() <= LONGEST_CONTINUE
        && text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\')
        && (known.iter().any(|prefix| text.starts_with(prefix)) || exact.contains(&text))
}

/// `/auth/login?continue=…`
pub(super) fn with_continue(path: &str, continue_to: &str) -> String {
    let query = serde_urlencoded::to_string([("continue", continue_to)]).unwrap_or_default();
    format!("{path}?{query}")
}

pub(super) fn redirect(to: &str) -> Response {
    match HeaderValue::from_str(to) {
        Ok(location) => (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response(),
        Err(_) => page::error(StatusCode::BAD_REQUEST, "The redirect address is not valid."),
    }
}

/// The error answer of RFC 6749.
pub(super) fn oauth_error(status: StatusCode, code: &str, description: &str) -> Response {
    let body = axum::Json(json!({ "error": code, "error_description": description }));
    (status, body).into_response()
}

fn logged(failure: Failure) -> (StatusCode, String) {
    match failure {
        Failure::Problem(problem) => {
            let status = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::BAD_REQUEST);
            (status, problem.message.into_owned())
        }
        Failure::Internal(error) => {
            tracing::error!(error = ?error, "the built-in issuer failed");
            (StatusCode::INTERNAL_SERVER_ERROR, "Internal error. Try again.".to_owned())
        }
        Failure::Bug(bug) => {
            telemetry::bug_found("the built-in issuer", &bug.to_string());
            (StatusCode::INTERNAL_SERVER_ERROR, "Internal error.".to_owned())
        }
    }
}

/// A failure as a page.
pub(super) struct PageFailure(Failure);

impl From<Failure> for PageFailure {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl axum::response::IntoResponse for PageFailure {
    fn into_response(self) -> Response {
        let (status, text) = logged(self.0);
        page::error(status, &text)
    }
}

/// A refusal or failure as JSON.
impl axum::response::IntoResponse for TokenError {
    fn into_response(self) -> Response {
        match self {
            Self::Refused(refusal) => {
                let status = match refusal {
                    Refusal::InvalidClient(_) => StatusCode::UNAUTHORIZED,
                    _ => StatusCode::BAD_REQUEST,
                };
                let mut response = oauth_error(status, refusal.code(), refusal.description());
                if status == StatusCode::UNAUTHORIZED {
                    let challenge = HeaderValue::from_static("Basic realm=\"gpuaas\"");
                    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
                }
                response
            }
            Self::Failed(failure) => {
                let (status, text) = logged(failure);
                let code = if status == StatusCode::INTERNAL_SERVER_ERROR {
                    "server_error"
                } else {
                    "temporarily_unavailable"
                };
                oauth_error(status, code, &text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_flows_are_continued() {
        for good in
            ["/auth/authorize?client_id=x", "/auth/device?user_code=A", "/auth/device", "/auth/password"]
        {
            assert!(is_continuation(good), "{good}");
        }
        for bad in [
            "https://evil.example/",
            "//evil.example/",
            "/\\evil.example",
            "/auth/authorize",
            "/auth/authorized?x",
            "/auth/device\r\nSet-Cookie: a=b",
            "/auth/login?continue=x",
            "/auth/authorize?a\\b",
        ] {
            assert!(!is_continuation(bad), "{bad}");
        }
    }

    #[test]
    fn a_repeated_parameter_is_refused_and_an_empty_one_is_none() {
        assert!(Params::parse(b"a=1&a=2").is_err());
        assert!(Params::parse(b"a=%00").is_err());
        assert!(Params::parse(b"a=%ff").is_err());
        let params = Params::parse(b"a=&b=x").unwrap();
        assert_eq!((params.get("a"), params.get("b")), (None, Some("x")));
    }
}
