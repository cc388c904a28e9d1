//! The body of a request: how much of it is read, for how long, and what it must say that it is.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::stream;

use super::*;
use crate::declare::{Lane, ScopeKind, Types};

const LIMIT_BYTES: usize = 8;
const PATIENCE: Duration = Duration::from_secs(10);

fn declaration(takes_body: bool) -> Declaration {
    let nothing = |_: &mut schemars::SchemaGenerator| schemars::Schema::default();
    Declaration {
        method: http::Method::POST,
        path: "/api/v1/doors",
        id: "door_create",
        summary: "",
        description: "",
        scope: ScopeKind::Platform,
        permission: None,
        audit: None,
        lane: Lane::Api,
        idempotency: Idempotency::None,
        body_limit_bytes: LIMIT_BYTES,
        timeout: PATIENCE,
        errors: &[],
        types: Types {
            path: nothing,
            query: nothing,
            body: takes_body.then_some(nothing as _),
            reply: None,
            reply_status: 200,
            reply_content: "application/json",
        },
    }
}

async fn read(takes_body: bool, headers: &[(&'static str, &str)], body: Body) -> Result<Bytes, Code> {
    let headers = headers.iter().map(|(name, value)| {
        (http::HeaderName::from_static(name), value.parse::<http::HeaderValue>().unwrap())
    });
    let read = read_body(&declaration(takes_body), &headers.collect(), body, PATIENCE).await;
    read.map_err(|failure| match failure {
        Failure::Problem(problem) => problem.code,
        Failure::Internal(_) | Failure::Bug(_) => Code::InternalError,
    })
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn a_body_is_read_up_to_its_limit_and_not_a_byte_more() {
    assert_eq!(read(true, &[JSON], Body::from("12345678")).await, Ok(Bytes::from("12345678")));
    assert_eq!(read(true, &[JSON], Body::from("123456789")).await, Err(Code::PayloadTooLarge));
    for (announced, result) in
        [("7", Ok(Bytes::from("1"))), ("8", Ok(Bytes::from("1"))), ("9", Err(Code::PayloadTooLarge))]
    {
        let read = read(true, &[JSON, ("content-length", announced)], Body::from("1")).await;
        assert_eq!(read, result, "{announced}");
    }
}

#[tokio::test]
async fn what_is_read_into_a_type_is_json() {
    let text = [("content-type", "text/plain")];
    assert_eq!(read(true, &text, Body::from("1")).await, Err(Code::UnsupportedMediaType));
    assert_eq!(read(true, &text, Body::empty()).await, Ok(Bytes::new()), "nothing is of no type");
    assert_eq!(read(false, &text, Body::from("1")).await, Ok(Bytes::from("1")), "nobody reads it");
    assert_eq!(read(false, &[JSON], Body::from("1")).await, Ok(Bytes::from("1")));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_or_does_not_come_is_refused() {
    let broken = stream::iter([Ok(Bytes::from("1")), Err(io::Error::other("gone"))]);
    assert_eq!(read(true, &[JSON], Body::from_stream(broken)).await, Err(Code::InvalidRequest));
    let silent = || Body::from_stream(stream::pending::<io::Result<Bytes>>());
    assert_eq!(read(true, &[JSON], silent()).await, Err(Code::InvalidRequest));
    let announced = [JSON, ("content-length", "9")];
    assert_eq!(read(true, &announced, silent()).await, Err(Code::PayloadTooLarge));
}

/// The client has to be done with sending before it reads the answer, but must not keep us busy for ever.
#[tokio::test]
async fn what_is_too_large_is_taken_in_up_to_eight_megabytes() {
    const MEGABYTE: usize = 1 << 20;
    for (sent, taken) in [(0, 0), (3, 3), (20, 9)] {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let frames = stream::iter((0..sent).map(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            io::Result::Ok(Bytes::from_static(&[0; MEGABYTE]))
        }));
        let read = read(true, &[JSON, ("content-length", "20971520")], Body::from_stream(frames)).await;
        assert_eq!(read, Err(Code::PayloadTooLarge));
        assert_eq!(count.load(Ordering::Relaxed), taken, "of {sent} megabytes");
    }
}
