//! What a caller sets for its requests; no method of the client has it as an argument.

use reqwest::header::{HeaderName, HeaderValue, IF_MATCH};

use crate::{Error, IDEMPOTENCY_KEY, generated::Client};

impl Client {
    /// A client whose next request has this key instead of a random one: repeated with the same key, it has one
    /// effect. Use it for one request.
    pub fn with_idempotency_key(&self, key: &str) -> Result<Self, Error> {
        self.with_header(HeaderName::from_static(IDEMPOTENCY_KEY), key)
    }

    /// A client whose next request is refused unless the resource still has this version. Use it for one request.
    pub fn with_if_match(&self, version: impl ToString) -> Result<Self, Error> {
        self.with_header(IF_MATCH, &version.to_string())
    }

    /// A client that calls `notice` before it waits for a rate limit.
    pub fn with_wait_notice(&self, notice: fn(std::time::Duration)) -> Self {
        let mut client = self.clone();
        client.inner.on_wait = Some(notice);
        client
    }

    fn with_header(&self, name: HeaderName, value: &str) -> Result<Self, Error> {
        let value = HeaderValue::from_str(value).map_err(|_| {
            Error::Request(format!("{name} contains characters that are not valid in a header"))
        })?;
        let mut client = self.clone();
        client.inner.headers.insert(name, value);
        Ok(client)
    }
}
