//! Answers: the error envelope, and what becomes of internal errors.

use axum::{body::Body, response::Response};
use futures_util::TryStreamExt as _;
use http::{HeaderValue, StatusCode, header};
use kernel::{Code, CorrelationId, Failure, Problem};

use crate::{declare::Endpoint, reauthorize::Reauthorization, reply::ReplyBody};

/// The error envelope as a response.
pub fn problem_response(problem: &Problem, correlation_id: CorrelationId) -> Response {
    let status = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = Response::new(Body::from(problem.envelope(correlation_id).to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = problem.retry_after_seconds {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Ends the body of an answer whose headers are gone.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct StreamCut(Problem);

/// What the client may know of a failure. An internal one is logged here, once, with its chain.
pub fn publish(db: &pg::Db, failure: Failure) -> Problem {
    let error = match failure {
        Failure::Problem(problem) => return problem,
        Failure::Internal(error) => error,
        Failure::Bug(bug) => {
            telemetry::bug_found("a request", &bug.to_string());
            return Problem::from_code(Code::InternalError);
        }
    };
    if pg::is_restoring(&*error) {
        return Problem::from_code(Code::RestorePending);
    }
    let transient = error.downcast_ref::<pg::Error>().is_some_and(pg::Error::is_transient)
        || error.downcast_ref().is_some_and(pg::is_transient);
    let mut chain = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        chain += &format!(": {cause}");
        source = cause.source();
    }
    if transient {
        db.suspect();
        tracing::warn!(
            error_code = Code::ServiceUnavailable.as_str(),
            error = chain,
            "request failed for now"
        );
        return Problem::from_code(Code::ServiceUnavailable).retry_after(1);
    }
    tracing::error!(error_code = Code::InternalError.as_str(), error = chain, "request failed");
    Problem::from_code(Code::InternalError)
}

/// A whole body of JSON, or none.
pub(crate) fn plain(status: u16, body: Vec<u8>) -> Response {
    let empty = body.is_empty();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    if !empty {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

/// What a handler returned, as a response; a stream lasts as long as the one who asked may have it.
pub(crate) fn reply(
    db: &pg::Db,
    endpoint: &Endpoint,
    body: ReplyBody,
    reauthorize: Option<Reauthorization>,
) -> Result<Response, Failure> {
    let types = &endpoint.declaration.types;
    Ok(match body {
        ReplyBody::Plain(bytes) => plain(types.reply_status, bytes),
        ReplyBody::Stream(stream) => {
            // Headers are gone by the time a stream fails: the connection is cut, and the log says why.
            let db = db.clone();
            let stream = match reauthorize {
                Some(reauthorize) => reauthorize.guard(stream),
                None => stream,
            };
            let stream = stream.map_err(move |failure| StreamCut(publish(&db, failure)));
            let mut response = Response::new(Body::from_stream(stream));
            response
                .headers_mut()
                .insert(header::CONTENT_TYPE, HeaderValue::from_static(types.reply_content));
            response
        }
    })
}
