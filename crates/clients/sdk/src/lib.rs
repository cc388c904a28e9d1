//! The Rust client of the API: generated from the committed OpenAPI document, with thin helpers.
//!
//! [`connect`] gives a [`Client`] whose methods are the operations of the API. Their arguments are those of the path,
//! those of the query in the order of their names, and the body. Texts are plain: the server checks them. Every
//! request takes a token from the [`TokenSource`], carries an idempotency key when it mutates, and is retried with
//! that key (see `transport`); [`Client::with_idempotency_key`] and [`Client::with_if_match`] choose key and version.
//! Errors become [`Error`]; a refusal by the service is an [`ApiError`] with code, suggestion and correlation id.
//! [`Pages`] follows cursors, [`oidc`] signs people and service accounts in, [`Client::raw`] reaches what has no
//! typed form.
//!
//! Promises: no wait without a limit, no retry without a bound, no token in a URL or in `Debug` output.

mod auth;
mod error;
#[allow(
    unused_imports,
    clippy::all,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::large_futures,
    reason = "generated"
)]
#[rustfmt::skip]
mod generated;
mod headers;
mod http;
pub mod oidc;
mod pages;
mod path;
mod random;
mod raw;
mod transport;

use std::sync::Arc;

pub use auth::{Anonymous, FixedToken, TokenSource};
pub use error::{ApiError, Error};
pub use generated::{ByteStream, Client, ResponseValue, types};
pub use http::http_client;
pub use pages::{PageItems, PageRequest, Pages};
pub use random::idempotency_key;
pub use raw::RawRequest;
pub use reqwest;
pub use transport::{IDEMPOTENCY_KEY, Transport};

/// A client of the server at `base` (`https://gpuaas.example.org`).
pub fn connect(base: &str, http: reqwest::Client, tokens: Arc<dyn TokenSource>) -> Client {
    let transport = Transport::new(http.clone(), tokens);
    Client::new_with_client(base.trim_end_matches('/'), http, transport)
}
