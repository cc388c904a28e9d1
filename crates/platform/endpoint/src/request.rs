//! What a request carries besides its types: body within bounds, idempotency key, expected version.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use kernel::{Code, Failure, Problem};

use crate::declare::{Declaration, Idempotency};

pub(crate) async fn read_body(
    declaration: &Declaration,
    headers: &HeaderMap,
    body: Body,
    patience: Duration,
) -> Result<bytes::Bytes, Failure> {
    let limit = declaration.body_limit_bytes;
    let too_large = || Problem::from_code(Code::PayloadTooLarge).detail("limit_bytes", limit);
    let announced =
        headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    if announced.is_some_and(|n| n > limit as u64) {
        discard(body).await;
        return Err(too_large().into());
    }
    let read = tokio::time::timeout(patience, axum::body::to_bytes(body, limit)).await;
    let bytes = match read {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) if is_length_limit(&error) => return Err(too_large().into()),
        Ok(Err(_)) => {
            return Err(Problem::new(Code::InvalidRequest, "The body could not be read.").into());
        }
        Err(_) => return Err(Problem::new(Code::InvalidRequest, "The body was sent too slowly.").into()),
    };
    if !bytes.is_empty() && declaration.types.body.is_some() && !is_json(headers) {
        return Err(Problem::from_code(Code::UnsupportedMediaType).into());
    }
    Ok(bytes)
}

const DISCARD_BYTES: usize = 8 * 1024 * 1024;
const DISCARD_PATIENCE: Duration = Duration::from_secs(2);

/// A client that is still sending does not listen: when the connection closes under it, it never sees why. So
/// what is too large is taken in and thrown away, within reason.
async fn discard(mut body: Body) {
    let take_in = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, bytes::Bytes::len);
            if seen > DISCARD_BYTES {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARD_PATIENCE, take_in).await;
}

/// Whether reading a body ended because it was longer than allowed.
pub fn is_length_limit(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        source = cause.source();
    }
    false
}

/// JSON is UTF-8; a client that says otherwise means other text than we would read.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()) else { return false };
    let mut parts = value.split(';').map(str::trim);
    let is_utf8 = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    };
    parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) && parts.all(is_utf8)
}

/// Headers that say one thing. Which of two counts, a proxy in front may decide otherwise than we do.
const SINGLE_HEADERS: &[&str] = &[
    "host",
    "authorization",
    "x-idempotency-key",
    "content-type",
    "content-length",
    "if-match",
    "last-event-id",
    "x-project-id",
    "x-correlation-id",
];

pub(crate) fn repeated_header(headers: &HeaderMap) -> Option<Problem> {
    let is_repeated = |name: &&&str| headers.get_all(**name).iter().nth(1).is_some();
    let name = SINGLE_HEADERS.iter().find(is_repeated)?;
    let problem = Problem::new(Code::InvalidRequest, format!("The header {name} is given more than once."));
    Some(problem.detail("header", *name).suggest("Send the header once."))
}

pub(crate) fn idempotency_key(
    idempotency: Idempotency,
    headers: &HeaderMap,
) -> Result<Option<String>, Problem> {
    if idempotency == Idempotency::None {
        return Ok(None);
    }
    match headers.get("x-idempotency-key") {
        None if idempotency == Idempotency::Required => Err(Problem::from_code(Code::IdempotencyKeyRequired)),
        None => Ok(None),
        Some(value) => match value.to_str() {
            Ok(key) if (1..=255).contains(&key.len()) => Ok(Some(key.to_owned())),
            _ => Err(Problem::field("X-Idempotency-Key", "must be 1 to 255 printable ASCII characters")),
        },
    }
}

/// `If-Match: "7"` or `If-Match: 7`; `*` matches any version.
pub(crate) fn if_match(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim().trim_matches('"');
    if text == "*" {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| Problem::field("If-Match", "must be the version that you read, such as \"3\""))
}

/// The id of an event of ours, or nothing: an empty one is what some clients send the first time.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| text.trim().parse().ok()).filter(|id: &i64| *id >= 0);
    id.map(Some).ok_or_else(|| Problem::field("Last-Event-ID", "must be the id of an event of this stream"))
}

pub(crate) fn request_hash(path: &[(String, String)], query: &str, body: &[u8]) -> [u8; 32] {
    let mut bytes = Vec::with_capacity(body.len() + query.len() + 64);
    for part in path.iter().map(|(_, value)| value.as_str()).chain([query]) {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes.extend(body);
    kernel::digest::sha256(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test, a failure is a failed test")]
#[path = "request_body_tests.rs"]
mod body_tests;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test, a failure is a failed test")]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_key_is_asked_for_where_money_or_capacity_moves() {
        let of = |idempotency, list: &[(&'static str, &str)]| {
            idempotency_key(idempotency, &headers(list)).map_err(|problem| problem.code)
        };
        let (given, long) = ([("x-idempotency-key", "k-1")], "x".repeat(256));
        assert_eq!(of(Idempotency::None, &given), Ok(None));
        for idempotency in [Idempotency::Accepted, Idempotency::Required] {
            assert_eq!(of(idempotency, &given), Ok(Some("k-1".to_owned())));
            let longest = [("x-idempotency-key", &long[1..])];
            assert_eq!(of(idempotency, &longest), Ok(Some(long[1..].to_owned())));
            for bad in ["", &long] {
                assert_eq!(of(idempotency, &[("x-idempotency-key", bad)]), Err(Code::ValidationError));
            }
        }
        assert_eq!(of(Idempotency::Accepted, &[]), Ok(None));
        assert_eq!(of(Idempotency::Required, &[]), Err(Code::IdempotencyKeyRequired));
    }

    #[test]
    fn requests_with_one_hash_are_one_request() {
        let path =
            |values: &[&str]| values.iter().map(|v| ("p".to_owned(), (*v).to_owned())).collect::<Vec<_>>();
        let hash = |values: &[&str], query: &str, body: &[u8]| request_hash(&path(values), query, body);
        let base = hash(&["a", "b"], "q=1", b"{}");
        assert_eq!(base, hash(&["a", "b"], "q=1", b"{}"));
        for other in [
            hash(&["ab", ""], "q=1", b"{}"),
            hash(&["a"], "b", b"q=1{}"),
            hash(&["b", "a"], "q=1", b"{}"),
            hash(&["a", "b"], "q=2", b"{}"),
            hash(&["a", "b"], "q=1", b"{ }"),
            hash(&["a", "b"], "q=1{}", b""),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn a_version_is_a_number_with_or_without_quotes() {
        let of = |value: &str| if_match(&headers(&[("if-match", value)])).map_err(|problem| problem.code);
        assert_eq!((of("7"), of("\"7\""), of(" 7 ")), (Ok(Some(7)), Ok(Some(7)), Ok(Some(7))));
        assert_eq!(of("*"), Ok(None));
        assert!(matches!(if_match(&HeaderMap::new()), Ok(None)));
        for bad in ["", "x", "7, 8", "W/7"] {
            assert_eq!(of(bad), Err(Code::ValidationError), "{bad}");
        }
    }

    #[test]
    fn the_last_event_is_a_number_that_is_not_negative() {
        let of = |value: &str| {
            last_event_id(&headers(&[("last-event-id", value)])).map_err(|problem| problem.code)
        };
        assert_eq!((of("0"), of("12"), of("")), (Ok(Some(0)), Ok(Some(12)), Ok(None)));
        for bad in ["-1", "x", "1.5"] {
            assert_eq!(of(bad), Err(Code::ValidationError), "{bad}");
        }
        assert!(matches!(last_event_id(&HeaderMap::new()), Ok(None)));
    }

    #[test]
    fn a_header_that_decides_is_given_once() {
        assert!(repeated_header(&headers(&[("if-match", "1"), ("accept", "a"), ("accept", "b")])).is_none());
        let problem = repeated_header(&headers(&[("if-match", "1"), ("if-match", "2")])).unwrap();
        assert_eq!((problem.code, &problem.details["header"]), (Code::InvalidRequest, &"if-match".into()));
    }

    #[test]
    fn json_is_utf8_and_says_nothing_else() {
        let is = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            is_json(&headers)
        };
        for good in
            ["application/json", "Application/JSON; charset=UTF-8", "application/json;charset=\"utf-8\";v=1"]
        {
            assert!(is(good), "{good}");
        }
        for bad in
            ["text/json", "application/json; charset=utf-16", "application/json;v=1; Charset = latin1", ""]
        {
            assert!(!is(bad), "{bad}");
        }
    }
}
