//! The door for the provider's messages, on the public listener of processes with the role webhook-worker.

use std::time::Duration;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State,
    response::Response,
    routing::post,
};
use http::{HeaderMap, StatusCode};
use kernel::{Code, CorrelationId, Problem};

use crate::{
    Payments,
    service::intake::{self, MOST_BYTES},
};

const SIGNATURE: &str = "stripe-signature";
/// A sender that trickles its message must not hold a place for long.
const READ_WITHIN: Duration = Duration::from_secs(10);
const KEEP_WITHIN: Duration = Duration::from_secs(10);

pub fn router(payments: Payments) -> Router {
    Router::new().route("/webhooks/payments", post(take)).with_state(payments)
}

/// 200 says that the message is safe with us: the provider need not send it again.
async fn take(State(payments): State<Payments>, headers: HeaderMap, body: Body) -> Response {
    match answer(&payments, &headers, body).await {
        Ok(()) => {
            let mut response = Response::new(Body::from("{}"));
            *response.status_mut() = StatusCode::OK;
            response
        }
        Err(problem) => endpoint::problem_response(&problem, CorrelationId(payments.db().ambient().uuid())),
    }
}

async fn answer(payments: &Payments, headers: &HeaderMap, body: Body) -> Result<(), Problem> {
    let body = match tokio::time::timeout(READ_WITHIN, to_bytes(body, MOST_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            metrics::counter!("payment_messages_refused_total", "why" => "too_large").increment(1);
            return Err(Problem::from_code(Code::PayloadTooLarge).detail("limit_bytes", MOST_BYTES));
        }
        Err(_) => return Err(Problem::new(Code::InvalidRequest, "The message did not arrive in time.")),
    };
    // A header that comes twice is not what the provider sends.
    let mut signatures = headers.get_all(SIGNATURE).iter();
    let signature =
        signatures.next().filter(|_| signatures.next().is_none()).and_then(|value| value.to_str().ok());
    match tokio::time::timeout(KEEP_WITHIN, intake::take(payments, signature, &body)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => Err(endpoint::publish(payments.db(), failure)),
        Err(_) => Err(Problem::from_code(Code::ServiceUnavailable).retry_after(1)),
    }
}
