//! What is sent again, how often, and with which key; against a listener that answers as it is told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure is a failed test")]

use std::sync::{Arc, Mutex};

use sdk::{Client, Error, FixedToken, RawRequest, reqwest::Method};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// What to do with a request.
#[derive(Clone, Copy)]
enum Act {
    /// Close the connection without an answer.
    Drop,
    Answer(&'static str),
}

const OK: Act = Act::Answer("200 OK\r\ncontent-length: 2\r\n\r\n{}");
const BUSY: Act = Act::Answer("503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}");
const UNDER_WAY: Act = Act::Answer("409 Conflict\r\nretry-after: 0\r\ncontent-length: 2\r\n\r\n{}");
const CONFLICT: Act = Act::Answer("409 Conflict\r\ncontent-length: 2\r\n\r\n{}");
const MUCH_LATER: Act = Act::Answer("503 Later\r\nretry-after: 600\r\ncontent-length: 2\r\n\r\n{}");

type Heard = Arc<Mutex<Vec<String>>>;

/// A client of a listener that acts in order, and what the listener heard.
async fn listener(acts: &'static [Act]) -> (Client, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let heard = Heard::default();
    let hears = heard.clone();
    tokio::spawn(async move {
        for act in acts {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"{\"a\":1}") && !request.ends_with(b"\r\n\r\n{}") {
                let mut chunk = [0; 1024];
                match stream.read(&mut chunk).await.unwrap() {
                    0 => break,
                    n => request.extend_from_slice(&chunk[..n]),
                }
                if request.starts_with(b"GET") && request.ends_with(b"\r\n\r\n") {
                    break;
                }
            }
            hears.lock().unwrap().push(String::from_utf8(request).unwrap());
            if let Act::Answer(answer) = act {
                let answer = answer.replacen("\r\n", "\r\nconnection: close\r\n", 1);
                stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            }
        }
    });
    let http = sdk::http_client("test").unwrap();
    (sdk::connect(&base, http, Arc::new(FixedToken::new("secret-token"))), heard)
}

fn post() -> RawRequest {
    let body = Some(serde_json::json!({ "a": 1 }));
    RawRequest { method: Method::POST, path: "/api/v1/things".to_owned(), headers: Vec::new(), body }
}

fn key(request: &str) -> &str {
    let line = request.lines().find_map(|line| line.strip_prefix("x-idempotency-key: "));
    line.unwrap_or_else(|| panic!("no key in {request}"))
}

#[tokio::test]
async fn a_mutation_is_retried_with_the_same_key_until_it_is_answered() {
    let (client, heard) = listener(&[Act::Drop, BUSY, UNDER_WAY, OK]).await;
    client.raw(post()).await.unwrap();
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 4);
    assert!(heard.iter().all(|request| key(request) == key(&heard[0])), "{heard:?}");
    assert!(heard.iter().all(|request| request.contains("authorization: Bearer secret-token")));
}

#[tokio::test]
async fn three_retries_are_the_end_of_it() {
    let (client, heard) = listener(&[BUSY, BUSY, BUSY, BUSY, OK]).await;
    let Err(Error::Api(error)) = client.raw(post()).await else { panic!("it was answered") };
    assert_eq!((error.status, heard.lock().unwrap().len()), (503, 4));
}

#[tokio::test]
async fn a_refusal_is_not_retried_and_two_mutations_have_two_keys() {
    let (client, heard) = listener(&[CONFLICT, OK]).await;
    assert!(matches!(client.raw(post()).await, Err(Error::Api(_))));
    client.raw(post()).await.unwrap();
    let heard = heard.lock().unwrap();
    assert_ne!(key(&heard[0]), key(&heard[1]));
}

#[tokio::test]
async fn asked_to_wait_for_long_the_client_says_so_instead() {
    let (client, heard) = listener(&[MUCH_LATER, OK]).await;
    let Err(Error::Api(error)) = client.raw(post()).await else { panic!("it waited") };
    assert_eq!((error.retry_after_seconds, heard.lock().unwrap().len()), (Some(600), 1));
}

#[tokio::test]
async fn reads_are_retried_too_and_need_no_key() {
    let (client, heard) = listener(&[Act::Drop, OK]).await;
    client.raw(RawRequest::get("/api/v1/things")).await.unwrap();
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 2);
    assert!(!heard.iter().any(|request| request.contains("x-idempotency-key")));
}

#[tokio::test]
async fn a_chosen_key_and_version_go_with_every_attempt_of_that_client_only() {
    let (client, heard) = listener(&[BUSY, OK, OK]).await;
    let chosen = client.with_idempotency_key("mine").unwrap().with_if_match(7).unwrap();
    chosen.raw(post()).await.unwrap();
    client.raw(post()).await.unwrap();
    let heard = heard.lock().unwrap();
    for request in &heard[..2] {
        assert_eq!(key(request), "mine");
        assert!(request.contains("if-match: 7\r\n"), "{request}");
    }
    assert!(key(&heard[2]) != "mine" && !heard[2].contains("if-match"), "{}", heard[2]);
    assert!(matches!(client.with_idempotency_key("a\nb"), Err(Error::Request(_))));
}
