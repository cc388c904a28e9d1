//! Bodies that are no requests.

use std::time::Duration;

use serde_json::json;
use testkit::{NodeClient, World};

use super::node;

#[tokio::test]
async fn bodies_that_are_too_large_malformed_or_endless_are_refused_and_the_listener_goes_on() {
    let world = World::start().await;
    let one = node(&world, "one").await;
    let huge = json!({ "csr_pem": "x".repeat(64 * 1024) });
    one.api.post(&one.path("cert/renew"), huge).await.refused(413, "payload_too_large");
    let send = |body: Vec<u8>| {
        let request = one.api.request(reqwest::Method::POST, &one.path("heartbeat"));
        one.api.send(request.header("content-type", "application/json").body(body))
    };
    for body in [&b"{"[..], b"[]", b"null", b"\xff\xfe", br#"{"agent_version": 7}"#] {
        let answer = send(body.to_vec()).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
    }
    let deep = vec![b'['; 20_000];
    assert_eq!(send(deep).await.status, 400);
    for odd in ["tasks/nonsense/result", "tasks/../../x/result", "tasks/task_%00/result"] {
        let answer = one.api.post(&one.path(odd), json!({})).await;
        assert!((400..500).contains(&answer.status), "{odd}: {}", answer.text);
    }
    let csr = one.api.post(&one.path("cert/renew"), json!({ "csr_pem": "not a request" })).await;
    assert!((400..500).contains(&csr.status), "{}", csr.text);
    // A body that never ends is given up within the time for bodies, not kept.
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
    let stream =
        futures_util::stream::unfold(receiver, |mut r| async { r.recv().await.map(|item| (item, r)) });
    sender.send(Ok(b"{".to_vec())).await.unwrap();
    let request = one.api.request(reqwest::Method::POST, &one.path("heartbeat"));
    let slow = one
        .api
        .send(request.header("content-type", "application/json").body(reqwest::Body::wrap_stream(stream)));
    let answer = tokio::time::timeout(Duration::from_secs(45), slow).await.expect("given up in time");
    assert!(answer.status >= 400, "{}", answer.text);
    drop(sender);
    one.api.post(&one.path("heartbeat"), NodeClient::heartbeat()).await.expect(200);
}
