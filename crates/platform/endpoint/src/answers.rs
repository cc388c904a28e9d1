//! Answers that are kept: sealed with their effect, found again by a repeated request.

use axum::{body::Body, response::Response};
use http::{HeaderValue, request::Parts};
use kernel::{Code, Failure, Problem};
use pg::{IdempotentRequest, StoredResponse};

use crate::{
    caller::Caller,
    declare::Endpoint,
    pipeline::Pipeline,
    request::{idempotency_key, read_body, request_hash},
    respond::plain,
};

impl Pipeline {
    /// The stored answer of a request whose own effect took away what it acted on (an accepted invitation, a
    /// deleted project): a retry must find it although its target is gone.
    pub(crate) async fn earlier_answer(
        &self,
        endpoint: &Endpoint,
        caller: &Caller,
        path: &[(String, String)],
        parts: Parts,
        body: Body,
    ) -> Result<Option<Response>, Failure> {
        let declaration = &endpoint.declaration;
        let Some(key) = idempotency_key(declaration.idempotency, &parts.headers)? else { return Ok(None) };
        let body = read_body(declaration, &parts.headers, body, self.limits.body_read_timeout).await?;
        let request_hash = request_hash(path, parts.uri.query().unwrap_or_default(), &body);
        let request =
            IdempotentRequest { principal_id: caller.id(), endpoint: declaration.id, key, request_hash };
        let stored = pg::idempotency_find(&self.services.db, &request).await?;
        stored.map(|stored| self.replay(&bound_to(&request), stored)).transpose()
    }

    pub(crate) fn replay(&self, bound_to: &str, stored: StoredResponse) -> Result<Response, Failure> {
        metrics::counter!("idempotency_replays_total").increment(1);
        let mut response = plain(stored.status, self.open_answer(bound_to, &stored.body)?);
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
        Ok(response)
    }

    pub(crate) fn seal_answer(&self, bound_to: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
        Ok(self.services.answers.seal(self.services.db.ambient(), bound_to, body)?)
    }

    fn open_answer(&self, bound_to: &str, sealed: &[u8]) -> Result<Vec<u8>, Failure> {
        let text = "The stored response of this idempotency key was encrypted with another master key and cannot be returned.";
        let opened = self.services.answers.open(bound_to, sealed);
        Ok(opened.map_err(|_| Problem::new(Code::Conflict, text))?.expose().clone())
    }
}

/// What a stored answer is sealed for: it cannot be read under another key, endpoint or principal.
pub(crate) fn bound_to(request: &IdempotentRequest) -> String {
    format!("{} {} {}", request.principal_id, request.endpoint, request.key)
}
