//! The one path that every request of a node takes.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header, request::Parts};
use kernel::{Code, CorrelationId, Failure, Problem, ids::TaskId};
use node_proto::contract::{self, CONTRACT, CONTRACT_HEADER, Proof, ROUTES, Route, RouteId, TIME_HEADER};
use pg::Origin;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tracing::Instrument as _;
use trust::peer::PeerCertificate;

use crate::{model::contract_version::ContractVersion, service::node_trust::NodeTrust};

use super::{
    Shared,
    caller::{self, Connection},
    handlers,
    refusals::Refused,
};

/// How long a body may take to come, and a request to be answered; a wait has its own measure on top.
const BODY_PATIENCE: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(30);

/// A request that was matched and admitted.
pub struct Asked<'a> {
    pub parts: Parts,
    pub body: Body,
    pub route: &'static Route,
    /// What stands in the path for each name.
    pub path: Vec<(&'static str, String)>,
    pub connection: &'a Connection,
    pub origin: Origin,
    pub contract: ContractVersion,
}

/// An agent that does not say speaks the previous version. Another minor one is understood; another major one is not.
fn version(headers: &HeaderMap) -> Result<ContractVersion, Problem> {
    let Some(given) = headers.get(CONTRACT_HEADER) else { return Ok(ContractVersion::PREVIOUS) };
    let same_major = |version: &ContractVersion| version.major == ContractVersion::PREVIOUS.major;
    let known = given.to_str().ok().and_then(ContractVersion::parse).filter(same_major);
    known.ok_or_else(|| {
        Problem::new(
            Code::InvalidRequest,
            format!("This control plane speaks version {CONTRACT} of the node contract."),
        )
        .detail("contract", CONTRACT)
        .suggest("Install an agent of the same release as the control plane.")
    })
}

/// The route of a path.
pub(super) struct Found {
    route: &'static Route,
    /// What stands in the path for each name.
    path: Vec<(&'static str, String)>,
    /// Whether the method is the route's.
    fits: bool,
}

fn find(method: &Method, path: &str) -> Option<Found> {
    let mut best: Option<Found> = None;
    for route in ROUTES {
        let Some(values) = fit(route.path, path) else { continue };
        let fits = method.as_str() == route.method;
        // The method decides, and among equals a fixed part is closer than a parameter.
        let closer = |before: &Found| {
            (fits && !before.fits) || (fits == before.fits && values.len() < before.path.len())
        };
        if best.as_ref().is_none_or(closer) {
            best = Some(Found { route, path: values, fits });
        }
    }
    best
}

fn fit(template: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let (mut parts, mut given) = (template.split('/'), path.split('/'));
    let mut values = Vec::new();
    loop {
        match (parts.next(), given.next()) {
            (None, None) => return Some(values),
            (Some(part), Some(text)) => {
                match part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                    Some(name) if !text.is_empty() => values.push((name, text.to_owned())),
                    None if part == text => {}
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
}

impl Asked<'_> {
    pub fn named(&self, name: &str) -> &str {
        self.path.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    pub fn task(&self) -> Result<TaskId, Problem> {
        self.named("task_id").parse().map_err(|_| Problem::not_found("task"))
    }

    /// The JSON body, within the bounds of the route.
    pub async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        let headers = &self.parts.headers;
        let kind =
            headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
            return Err(Problem::from_code(Code::UnsupportedMediaType));
        }
        let bytes = read(headers, std::mem::take(&mut self.body), self.route.body_limit).await?;
        parse(&bytes)
    }
}

async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Problem> {
    let too_large = || Problem::from_code(Code::PayloadTooLarge).detail("limit_bytes", limit);
    let announced =
        headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_PATIENCE, axum::body::to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if endpoint::is_length_limit(&error) => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(Code::InvalidRequest, "The body could not be read.")),
        Err(_) => Err(Problem::new(Code::InvalidRequest, "The body was sent too slowly.")),
    }
}

const NUL: &[u8] = br"\u0000";

/// Postgres keeps no NUL in text; one that a node sends is replaced, rather than its report lost.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let bad = |error: serde_json::Error| {
        Problem::new(Code::InvalidRequest, format!("The body does not match the contract: {error}."))
            .suggest("Compare it with openapi/node.json.")
    };
    if !bytes.windows(NUL.len()).any(|window| window == NUL) {
        return serde_json::from_slice(bytes).map_err(bad);
    }
    let mut value: Value = serde_json::from_slice(bytes).map_err(bad)?;
    without_nul(&mut value);
    serde_json::from_value(value).map_err(bad)
}

fn without_nul(value: &mut Value) {
    const INSTEAD: &str = "\u{fffd}";
    match value {
        Value::String(text) if text.contains('\0') => *text = text.replace('\0', INSTEAD),
        Value::Array(items) => items.iter_mut().for_each(without_nul),
        Value::Object(map) => {
            let entries = std::mem::take(map);
            map.extend(entries.into_iter().map(|(key, mut value)| {
                without_nul(&mut value);
                (key.replace('\0', INSTEAD), value)
            }));
        }
        _ => {}
    }
}

pub fn json<T: Serialize>(answer: &T) -> Result<Response, Failure> {
    let mut response = Response::new(Body::from(serde_json::to_vec(answer)?));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

impl Shared {
    /// Always answers; every refusal is the envelope of the public API.
    pub async fn serve(self: Arc<Self>, request: Request<Body>, connection: Arc<Connection>) -> Response {
        let (parts, body) = request.into_parts();
        let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let ambient = self.fleet.db().ambient();
        let correlation_id = text("x-correlation-id").and_then(CorrelationId::accept);
        let correlation_id = correlation_id.unwrap_or_else(|| CorrelationId(ambient.uuid()));
        let traceparent = text("traceparent").filter(|t| t.len() <= 128).map(str::to_owned);
        let source_ip = Some(connection.source.to_canonical().to_string());
        let origin = Origin { correlation_id, source_ip, traceparent };

        let found = find(&parts.method, parts.uri.path()).filter(|found| self.is_served(found.route));
        let endpoint = found.as_ref().map_or("unknown", |found| found.route.id.name());
        let span = tracing::info_span!(
            "node_request", endpoint, correlation_id = %correlation_id,
            node_id = connection.node().map(tracing::field::display)
        );
        let started = tokio::time::Instant::now();
        let method =
            if endpoint == "unknown" { "other".to_owned() } else { parts.method.as_str().to_owned() };
        let work = self.clone().answer(found, parts, body, connection, origin);
        let limit = PATIENCE + Duration::from_secs(u64::from(contract::WAIT_SECONDS));
        let outcome = match tokio::time::timeout(limit, Box::pin(work.instrument(span.clone()))).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let text = "The request timed out.";
                Err(Problem::new(Code::ServiceUnavailable, text).retry_after(1).into())
            }
        };
        let mut response = outcome.unwrap_or_else(|failure| {
            let _entered = span.enter();
            endpoint::problem_response(&endpoint::publish(self.fleet.db(), failure), correlation_id)
        });
        let (status, elapsed) = (response.status(), started.elapsed());
        metrics::counter!("http_requests_total", "endpoint" => endpoint, "method" => method, "status" => status.as_str().to_owned())
            .increment(1);
        metrics::histogram!("http_request_duration_seconds", "endpoint" => endpoint)
            .record(elapsed.as_secs_f64());
        let headers = response.headers_mut();
        // A certificate is asked for here, and no bearer token would help.
        headers.remove(header::WWW_AUTHENTICATE);
        headers.insert(CONTRACT_HEADER, HeaderValue::from_static(CONTRACT));
        headers.insert(TIME_HEADER, HeaderValue::from(self.fleet.db().ambient().now().timestamp_millis()));
        if let Ok(value) = HeaderValue::from_str(&correlation_id.to_string()) {
            headers.insert("x-correlation-id", value);
        }
        // Not because they are secret: what is marked so stays out of the compression table that HTTP/2 would keep for
        // every connection, and most of these values never come again.
        headers.values_mut().for_each(|value| value.set_sensitive(true));
        response
    }

    fn is_served(&self, route: &Route) -> bool {
        if route.id == RouteId::Logs { self.serves_logs } else { self.tasks }
    }

    pub(super) async fn answer(
        self: Arc<Self>,
        found: Option<Found>,
        parts: Parts,
        body: Body,
        connection: Arc<Connection>,
        origin: Origin,
    ) -> Result<Response, Failure> {
        let Found { route, path, fits } = found.ok_or_else(|| Problem::not_found("path"))?;
        if !fits {
            return Err(Problem::from_code(Code::MethodNotAllowed).into());
        }
        let contract = version(&parts.headers)?;
        let asked = Asked { parts, body, route, path, connection: &connection, origin, contract };
        if route.proof == Proof::Token {
            return Box::pin(handlers::enroll(&self, asked)).await;
        }
        let (action, target, origin) = (
            handlers::audit_action(route),
            asked.named("task_id").chars().take(64).collect::<String>(),
            asked.origin.clone(),
        );
        // What stands in the path may be long, and goes into the trail.
        let named: String = asked.named("node_id").chars().take(64).collect();
        let (certificate, trust) = match Box::pin(self.admit(&connection, &named, route, &origin)).await? {
            Ok(admitted) => admitted,
            Err(refusal) => {
                Box::pin(self.note_copy(&connection, &refusal, &origin)).await?;
                let refused = Refused {
                    reason: refusal.reason,
                    action: "node.authenticate",
                    node: connection.node(),
                    target: ("node", Some(named)),
                    code: refusal.problem.code,
                    source: connection.source,
                };
                Box::pin(self.refusals.note(self.fleet.db(), refused, &origin)).await;
                return Err(refusal.problem.into());
            }
        };
        let node = certificate.node_id;
        let outcome = handlers::run(&self, asked, certificate, &trust).await;
        if let (Some(action), Err(Failure::Problem(problem))) = (action, &outcome)
            && is_refusal(problem.code)
        {
            let target =
                if target.is_empty() { ("node", Some(node.to_string())) } else { ("task", Some(target)) };
            let refused = Refused {
                reason: action,
                action,
                node: Some(node),
                target,
                code: problem.code,
                source: connection.source,
            };
            Box::pin(self.refusals.note(self.fleet.db(), refused, &origin)).await;
        }
        outcome
    }

    /// The caller, when it is the node that the path names and may still speak.
    async fn admit<'a>(
        &self,
        connection: &'a Connection,
        named: &str,
        route: &Route,
        origin: &Origin,
    ) -> Result<Result<(&'a PeerCertificate, NodeTrust), caller::Refusal>, Failure> {
        let now = self.fleet.db().ambient().now();
        let certificate = match caller::certificate(connection, now) {
            Ok(certificate) => certificate,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if let Err(refusal) = caller::own(certificate, named) {
            return Ok(Err(refusal));
        }
        Ok(self.trust(certificate, route, origin).await?.map(|trust| (certificate, trust)))
    }
}

/// Answers that say "you may not", rather than "you made a mistake" or "we did".
pub fn is_refusal(code: Code) -> bool {
    matches!(code.status(), 401 | 403 | 404 | 409 | 422)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_by_its_own_path_and_no_other() {
        for route in ROUTES {
            let path = route.fill(&["node_1", "x"]);
            let method: Method = route.method.parse().unwrap();
            let found = find(&method, &path).unwrap();
            assert_eq!((found.route.id, found.fits), (route.id, true));
            assert_eq!(found.path.len(), route.path.matches('{').count(), "{path}");
            assert!(!find(&Method::DELETE, &path).unwrap().fits);
            assert!(
                find(&method, &format!("{path}/")).is_none() && find(&method, &format!("/x{path}")).is_none()
            );
        }
        assert!(find(&Method::GET, "/internal/v1/nodes//trust").is_none());
        assert!(find(&Method::GET, "").is_none());
    }

    #[test]
    fn another_minor_version_is_understood_and_another_major_one_is_told_what_to_do() {
        let given = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTRACT_HEADER, HeaderValue::from_str(text).unwrap());
            version(&headers)
        };
        assert_eq!(version(&HeaderMap::new()), Ok(ContractVersion::PREVIOUS));
        assert_eq!(given(contract::PREVIOUS_CONTRACT), Ok(ContractVersion::PREVIOUS));
        assert_eq!(given("1.7"), Ok(ContractVersion { major: 1, minor: 7 }));
        for bad in ["2.0", "0.9", "1", "one.two", "1.-1", "1.99999999"] {
            let problem = given(bad).unwrap_err();
            assert_eq!(problem.code, Code::InvalidRequest, "{bad}");
            assert!(problem.suggestion.is_some());
        }
    }

    #[test]
    fn a_nul_is_replaced_and_broken_json_is_the_senders_mistake() {
        let value: Value = parse(br#"{"a\u0000": ["x\u0000y", 1]}"#).unwrap();
        assert_eq!(value, serde_json::json!({ "a\u{fffd}": ["x\u{fffd}y", 1] }));
        for broken in [&b"{"[..], b"", b"\xff", b"{\"a\":\"\0\"}"] {
            assert_eq!(parse::<Value>(broken).unwrap_err().code, Code::InvalidRequest);
        }
    }
}
