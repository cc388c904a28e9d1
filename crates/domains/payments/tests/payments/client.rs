//! The client of the provider against a server that fails in every way that passes.

use std::sync::{Arc, Mutex};

use axum::{Router, extract::State, http::HeaderMap};
use http::StatusCode;
use kernel::{Secret, ids::RefundId};
use payments::provider::{Provider as _, ProviderError, Stripe, StripeSettings};
use uuid::Uuid;

/// What it answers next, and what it was asked.
#[derive(Default)]
struct Script {
    answers: Vec<(u16, &'static str)>,
    asked: Vec<(String, Option<String>, String)>,
}

type Shared = Arc<Mutex<Script>>;

async fn answer(
    State(script): State<Shared>,
    uri: http::Uri,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, &'static str) {
    let mut script = script.lock().unwrap();
    let key = headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned());
    assert_eq!(headers["authorization"], "Bearer sk_test");
    assert!(headers.contains_key("stripe-version"));
    script.asked.push((uri.to_string(), key, body));
    let (status, text) = script.answers.remove(0);
    (StatusCode::from_u16(status).unwrap(), text)
}

async fn serve(answers: &[(u16, &'static str)]) -> (Stripe, Shared) {
    let script = Arc::new(Mutex::new(Script { answers: answers.to_vec(), asked: Vec::new() }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let router = Router::new().fallback(answer).with_state(script.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let http = testkit::http_client().build().unwrap();
    let settings = StripeSettings { name: "simulated", base, key: Secret::new("sk_test".to_owned()) };
    (Stripe::new(http, settings), script)
}

const REFUND: &str =
    r#"{"id": "re_1", "amount": 5, "currency": "usd", "status": "succeeded", "metadata": {}}"#;

#[tokio::test]
async fn what_may_pass_is_tried_again_under_the_same_key() {
    let (stripe, script) = serve(&[(409, "{}"), (503, "oops"), (200, REFUND)]).await;
    let id = RefundId::from(Uuid::from_u128(7));
    assert_eq!(stripe.refund_create("pi_1", 5, id).await.unwrap().id, "re_1");
    let script = script.lock().unwrap();
    assert_eq!(script.asked.len(), 3);
    for (path, key, body) in &script.asked {
        assert_eq!((path.as_str(), key.as_deref()), ("/v1/refunds", Some(id.to_string().as_str())));
        assert_eq!(body, &format!("payment_intent=pi_1&amount=5&metadata%5Brefund_id%5D={id}"));
    }
}

#[tokio::test]
async fn a_refusal_is_not_tried_again_and_trouble_has_an_end() {
    let error = r#"{"error": {"code": "charge_already_refunded", "message": "It\nwas."}}"#;
    let (stripe, script) = serve(&[(400, error)]).await;
    let refused = stripe.refund_get("re_1").await.unwrap_err();
    assert!(
        matches!(&refused, ProviderError::Refused(text) if text == "400 charge_already_refunded Itwas."),
        "{refused}"
    );
    assert_eq!(script.lock().unwrap().asked.len(), 1);

    let (stripe, script) = serve(&[(500, "{}"), (429, "{}"), (401, "{}")]).await;
    assert!(matches!(stripe.refund_get("re_1").await, Err(ProviderError::Unavailable(_))));
    assert_eq!(script.lock().unwrap().asked.len(), 3);

    let (stripe, _) = serve(&[(200, "no json")]).await;
    assert!(matches!(stripe.refund_get("re_1").await, Err(ProviderError::Unavailable(_))));
}

#[tokio::test]
async fn an_id_cannot_lead_to_another_path() {
    let (stripe, script) = serve(&[(200, REFUND)]).await;
    stripe.refund_get("../customers?x=1").await.unwrap();
    assert_eq!(script.lock().unwrap().asked[0].0, "/v1/refunds/..%2Fcustomers%3Fx=1");
}
