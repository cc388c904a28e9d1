//! From declarations to an axum router.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{RawPathParams, rejection::RawPathParamsRejection},
    response::Response,
    routing::{MethodFilter, MethodRouter, on},
};
use http::{HeaderValue, Method, Request, header};
use kernel::{Ambient, Code, CorrelationId, Problem};

use crate::{
    caller::Services,
    declare::Endpoint,
    pipeline::{Limits, Pipeline},
    rate::Lanes,
    respond::problem_response,
};

/// Serves the endpoints and nothing else; unknown paths and methods get the error envelope.
pub fn router(services: Services, limits: Limits, endpoints: Vec<Endpoint>) -> Router {
    let ambient = services.db.ambient().clone();
    let pipeline = Arc::new(Pipeline { services, lanes: Lanes::start(), limits });
    let mut by_path: BTreeMap<&'static str, Vec<Endpoint>> = BTreeMap::new();
    for endpoint in endpoints {
        by_path.entry(endpoint.declaration.path).or_default().push(endpoint);
    }
    let mut router = Router::new();
    for (path, endpoints) in by_path {
        router = router.route(path, methods(&pipeline, &ambient, endpoints));
    }
    router.fallback(move |request: Request<Body>| {
        let correlation_id = correlation(&ambient, &request);
        async move { problem_response(&Problem::not_found("path"), correlation_id) }
    })
}

/// A refusal of a request that says twice what may be said once, whatever would serve it.
pub fn refuse_repeated_headers<B>(ambient: &Ambient, request: &Request<B>) -> Option<Response> {
    let problem = crate::request::repeated_header(request.headers())?;
    Some(problem_response(&problem, correlation(ambient, request)))
}

fn methods(pipeline: &Arc<Pipeline>, ambient: &Ambient, endpoints: Vec<Endpoint>) -> MethodRouter {
    let mut allowed: Vec<&str> = Vec::new();
    let mut router = MethodRouter::new();
    for endpoint in endpoints {
        allowed.push(match endpoint.declaration.method {
            Method::GET => "GET, HEAD",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            _ => "DELETE",
        });
        let filter =
            MethodFilter::try_from(endpoint.declaration.method.clone()).unwrap_or(MethodFilter::TRACE);
        let (pipeline, endpoint) = (pipeline.clone(), Arc::new(endpoint));
        let unreadable = ambient.clone();
        let serve = move |path: Result<RawPathParams, RawPathParamsRejection>, request: Request<Body>| {
            let path = path
                .map(|path| path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
            let (pipeline, endpoint, correlation_id) =
                (pipeline.clone(), endpoint.clone(), correlation(&unreadable, &request));
            async move {
                match path {
                    Ok(path) => Box::pin(pipeline.run(endpoint, path, request)).await,
                    Err(_) => {
                        let problem = Problem::new(Code::InvalidRequest, "The path is not valid UTF-8.");
                        problem_response(&problem, correlation_id)
                    }
                }
            }
        };
        router = router.merge(on(filter, serve));
    }
    let allow = HeaderValue::from_str(&allowed.join(", ")).unwrap_or(HeaderValue::from_static(""));
    let ambient = ambient.clone();
    router.fallback(move |request: Request<Body>| {
        let correlation_id = correlation(&ambient, &request);
        let mut response: Response =
            problem_response(&Problem::from_code(Code::MethodNotAllowed), correlation_id);
        response.headers_mut().insert(header::ALLOW, allow.clone());
        async move { response }
    })
}

fn correlation<B>(ambient: &Ambient, request: &Request<B>) -> CorrelationId {
    let given = request.headers().get("x-correlation-id").and_then(|v| v.to_str().ok());
    given.and_then(CorrelationId::accept).unwrap_or_else(|| CorrelationId(ambient.uuid()))
}
