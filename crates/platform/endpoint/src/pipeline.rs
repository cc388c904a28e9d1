//! The one path that every request takes.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{body::Body, extract::ConnectInfo, response::Response};
use http::{HeaderMap, HeaderValue, Request, request::Parts};
use kernel::{Code, CorrelationId, Failure, Problem};
use pg::{Begin, IdempotentRequest, Origin, Permit, Refusal, Scope, StoredResponse};
use tracing::Instrument as _;

use crate::{
    answers::bound_to,
    authorize::{Access, Decision},
    caller::{Caller, ClientInfo, Services},
    declare::{Declaration, Endpoint},
    handler::{Erased, ReadyWrite, Write, take_back},
    input::RawInput,
    rate::{Budget, Lanes},
    reauthorize::Reauthorization,
    request::{idempotency_key, if_match, last_event_id, read_body, request_hash},
    respond::{plain, problem_response, publish, reply},
};

/// Bounds on what a request may cost before its handler runs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub body_read_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body_read_timeout: Duration::from_secs(10) }
    }
}

pub(crate) struct Pipeline {
    pub services: Services,
    pub lanes: Arc<Lanes>,
    pub limits: Limits,
}

/// What the connection and the headers say, before anything is believed.
struct Envelope {
    origin: Origin,
    client: ClientInfo,
}

/// An answer on its way out.
struct Answer {
    response: Response,
    budget: Option<Budget>,
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self { response, budget: None }
    }
}

impl Pipeline {
    pub async fn run(
        self: Arc<Self>,
        endpoint: Arc<Endpoint>,
        path: Vec<(String, String)>,
        request: Request<Body>,
    ) -> Response {
        let (parts, body) = request.into_parts();
        let envelope = self.open(&parts);
        let (id, method) = (endpoint.declaration.id, endpoint.declaration.method.as_str().to_owned());
        let correlation_id = envelope.origin.correlation_id;
        let span = tracing::info_span!(
            "request",
            endpoint = id,
            correlation_id = %correlation_id,
            org_id = tracing::field::Empty,
            project_id = tracing::field::Empty,
            principal_id = tracing::field::Empty,
            error_code = tracing::field::Empty,
        );
        if let Some(traceparent) = &envelope.origin.traceparent {
            telemetry::set_parent(&span, traceparent);
        }
        let started = tokio::time::Instant::now();
        let in_flight = InFlight::begin();
        let timeout = endpoint.declaration.timeout;
        let work = self.answer(&endpoint, envelope, path, parts, body);
        let Answer { mut response, budget } =
            match tokio::time::timeout(timeout, work.instrument(span.clone())).await {
                Ok(answer) => answer,
                Err(_) => {
                    let problem = Problem::new(Code::ServiceUnavailable, "The request timed out.");
                    problem_response(&problem.retry_after(1), correlation_id).into()
                }
            };
        drop(in_flight);
        let elapsed = started.elapsed();
        let status = response.status();
        metrics::counter!("http_requests_total", "endpoint" => id, "method" => method, "status" => status.as_str().to_owned())
            .increment(1);
        metrics::histogram!("http_request_duration_seconds", "endpoint" => id).record(elapsed.as_secs_f64());
        span.in_scope(|| {
            tracing::info!(
                status = status.as_u16(),
                duration_ms = elapsed.as_millis() as u64,
                "request served"
            )
        });
        let headers = response.headers_mut();
        set(headers, "x-correlation-id", &correlation_id.to_string());
        if let Some(budget) = budget {
            set(headers, "x-ratelimit-limit", &budget.limit.to_string());
            set(headers, "x-ratelimit-remaining", &budget.remaining.to_string());
            set(headers, "x-ratelimit-reset", &budget.retry_after_seconds.unwrap_or(0).to_string());
        }
        response
    }

    fn open(&self, request: &Parts) -> Envelope {
        let text = |name: &str| request.headers.get(name).and_then(|v| v.to_str().ok());
        let correlation_id = text("x-correlation-id")
            .and_then(CorrelationId::accept)
            .unwrap_or_else(|| CorrelationId(self.services.db.ambient().uuid()));
        let source_ip = request
            .extensions
            .get::<ConnectInfo<SocketAddr>>()
            .map(|info| info.0.ip().to_canonical().to_string());
        let traceparent = text("traceparent").filter(|t| t.len() <= 128).map(str::to_owned);
        let user_agent = text("user-agent").map(|t| t.chars().take(200).collect());
        Envelope {
            origin: Origin { correlation_id, source_ip: source_ip.clone(), traceparent },
            client: ClientInfo { source_ip, user_agent },
        }
    }

    async fn answer(
        &self,
        endpoint: &Endpoint,
        envelope: Envelope,
        path: Vec<(String, String)>,
        request: Parts,
        body: Body,
    ) -> Answer {
        let correlation_id = envelope.origin.correlation_id;
        let mut budget = None;
        match self.attempt(endpoint, envelope, path, (request, body), &mut budget).await {
            Ok(response) => Answer { response, budget },
            Err(failure) => {
                let problem = publish(&self.services.db, failure);
                tracing::Span::current().record("error_code", problem.code.as_str());
                Answer { response: problem_response(&problem, correlation_id), budget }
            }
        }
    }

    async fn attempt(
        &self,
        endpoint: &Endpoint,
        envelope: Envelope,
        path: Vec<(String, String)>,
        (request, body): (Parts, Body),
        budget: &mut Option<Budget>,
    ) -> Result<Response, Failure> {
        let declaration = &endpoint.declaration;
        let Envelope { mut origin, client } = envelope;
        // Events that this request writes continue its trace.
        if let Some(traceparent) = telemetry::current_traceparent() {
            origin.traceparent = Some(traceparent);
        }
        if let Erased::Public(parse) = &endpoint.run {
            let key = client.source_ip.clone().unwrap_or_default();
            *budget = Some(self.spend(declaration, None, &key).await?);
            let query = request.uri.query().unwrap_or_default().to_owned();
            let raw = RawInput {
                path,
                query,
                body: Default::default(),
                if_match: None,
                last_event_id: None,
                access: Access::public(),
            };
            return reply(&self.services.db, endpoint, parse(raw)?.await?, None);
        }
        let caller = self.services.authenticate(&request.headers, &client).await?;
        tracing::Span::current().record("principal_id", tracing::field::display(caller.id()));
        *budget = Some(self.spend(declaration, Some(&caller), &caller.id().to_string()).await?);
        // What the refusal's audit row says was aimed at: the names in the path.
        let names: Vec<&str> = path.iter().map(|(_, value)| value.as_str()).collect();
        let target = (!names.is_empty()).then(|| names.join("/"));
        let decision = match self.services.authorize(declaration, &caller, &path, &request.headers).await {
            Ok(decision) => decision,
            Err(refusal) => {
                let gone = matches!(&refusal.problem, Failure::Problem(p) if p.code == Code::NotFound);
                if gone
                    && let Some(answer) = self.earlier_answer(endpoint, &caller, &path, request, body).await?
                {
                    return Ok(answer);
                }
                let actor = caller.actor("none");
                return Err(self
                    .audit_refusal(declaration, (actor, refusal.scope), target, &origin, refusal.problem)
                    .await);
            }
        };
        if let Some(org) = decision.scope.org() {
            tracing::Span::current().record("org_id", tracing::field::display(org));
        }
        if let Some(project) = decision.scope.project() {
            tracing::Span::current().record("project_id", tracing::field::display(project));
        }
        let (actor, scope) = (decision.actor, decision.scope);
        match self.perform(endpoint, decision, (&caller, client), path, (request, body), &origin).await {
            Ok(response) => Ok(response),
            Err(failure) => {
                Err(self.audit_refusal(declaration, (actor, scope), target, &origin, failure).await)
            }
        }
    }

    async fn spend(
        &self,
        declaration: &Declaration,
        caller: Option<&Caller>,
        key: &str,
    ) -> Result<Budget, Failure> {
        let lane = declaration.lane;
        let user = caller.and_then(Caller::user);
        let per_minute = self.services.policies.setting(lane.policy(), None, user).await?;
        Ok(self.lanes.admit(lane, per_minute, key)?)
    }

    /// A refused mutation is audited too. Failing to record it must not hide the refusal.
    async fn audit_refusal(
        &self,
        declaration: &Declaration,
        (actor, scope): (pg::Actor, Scope),
        target: Option<String>,
        origin: &Origin,
        failure: Failure,
    ) -> Failure {
        if let (Some(action), Failure::Problem(problem)) = (declaration.audit, &failure) {
            let refusal = Refusal { actor, scope, action, target: ("path", target), code: problem.code };
            if let Err(error) = pg::refuse(&self.services.db, refusal, origin).await {
                tracing::error!(error = %error, action, "a refusal could not be audited");
            }
        }
        failure
    }

    async fn perform(
        &self,
        endpoint: &Endpoint,
        decision: Decision,
        (caller, client): (&Caller, ClientInfo),
        path: Vec<(String, String)>,
        (parts, body): (Parts, Body),
        origin: &Origin,
    ) -> Result<Response, Failure> {
        let declaration = &endpoint.declaration;
        let idempotency_key = idempotency_key(declaration.idempotency, &parts.headers)?;
        let if_match = if_match(&parts.headers)?;
        let body = read_body(declaration, &parts.headers, body, self.limits.body_read_timeout).await?;
        let request_hash = request_hash(&path, parts.uri.query().unwrap_or_default(), &body);
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let last_event_id = last_event_id(&parts.headers)?;
        let reauthorize = match endpoint.run {
            Erased::Read(_) => {
                Some(Reauthorization::new(&self.services, declaration, caller, client, &path, &parts)?)
            }
            _ => None,
        };
        let raw = RawInput { path, query, body, if_match, last_event_id, access: decision.access };
        let permit = Permit::granted(decision.actor, decision.scope, origin.clone(), decision.granted);
        match (&endpoint.run, declaration.audit) {
            (Erased::Read(parse), _) => {
                let ready = parse(raw)?;
                let tx = self.services.db.read(&permit).await?;
                let body = match &reauthorize {
                    Some(reauthorize) => reauthorize.while_held(ready(tx)).await?,
                    None => ready(tx).await?,
                };
                reply(&self.services.db, endpoint, body, reauthorize)
            }
            (Erased::Write(parse), Some(action)) => {
                let ready = parse(raw)?;
                let idempotency = idempotency_key.map(|key| IdempotentRequest {
                    principal_id: caller.id(),
                    endpoint: declaration.id,
                    key,
                    request_hash,
                });
                self.write(endpoint, permit, action, idempotency, ready).await
            }
            // The builder gives every write an audit action and every public endpoint another path.
            (Erased::Write(_), None) | (Erased::Public(_), _) => {
                Err(Problem::from_code(Code::InternalError).into())
            }
        }
    }

    async fn write(
        &self,
        endpoint: &Endpoint,
        permit: Permit,
        action: &'static str,
        idempotency: Option<IdempotentRequest>,
        ready: ReadyWrite,
    ) -> Result<Response, Failure> {
        let bound_to = idempotency.as_ref().map(bound_to);
        let begun = self.services.db.write_once(permit, action, idempotency).await;
        let tx = match begun {
            Ok(Begin::New(tx)) => *tx,
            Ok(Begin::Replay(stored)) => return self.replay(bound_to.as_deref().unwrap_or_default(), stored),
            Ok(Begin::KeyReused) => return Err(Problem::from_code(Code::IdempotencyKeyReused).into()),
            Err(pg::Error::LockTimeout(_)) if bound_to.is_some() => {
                let text = "A request with this idempotency key is in progress.";
                return Err(Problem::new(Code::Conflict, text).retry_after(1).into());
            }
            Err(error) => return Err(error.into()),
        };
        let (lent, home) = Write::lend(tx);
        let outcome = ready(lent).await;
        let tx = take_back(&home);
        let body = match outcome {
            Ok(body) => body,
            Err(failure) => {
                if let Some(tx) = tx {
                    tx.roll_back().await;
                }
                return Err(failure);
            }
        };
        let Some(tx) = tx else {
            return Err(Failure::bug("a handler kept its transaction"));
        };
        let status = endpoint.declaration.types.reply_status;
        let stored = match &bound_to {
            Some(bound_to) => Some(StoredResponse { status, body: self.seal_answer(bound_to, &body)? }),
            None => None,
        };
        tx.commit(stored).await?;
        metrics::counter!("audit_rows_total").increment(1);
        Ok(plain(status, body))
    }
}

/// Counts a request for as long as it is served, however that ends.
struct InFlight;

impl InFlight {
    fn begin() -> Self {
        metrics::gauge!("http_requests_in_flight").increment(1.0);
        Self
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        metrics::gauge!("http_requests_in_flight").decrement(1.0);
    }
}

fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
