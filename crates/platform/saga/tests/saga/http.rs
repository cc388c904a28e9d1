//! The operators' endpoints through the real pipeline; only who calls is made up.

use axum::body::Body;
use endpoint::Limits;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use testkit::{Callers, DefaultPolicies};
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::support::{Fixture, Recorder};

struct Operators(axum::Router);

impl Operators {
    fn new(fixture: &Fixture) -> Self {
        let services = Callers::operators().services(&fixture.db, DefaultPolicies);
        Self(endpoint::router(services, Limits::default(), saga::endpoints(fixture.db.clone())))
    }

    async fn call(&self, who: &str, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let body = body.map_or_else(Body::empty, |b| Body::from(b.to_string()));
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1/platform/sagas{path}"))
            .header("authorization", format!("Bearer {who}"))
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn list(&self, query: &str) -> Value {
        let (status, list) = self.call("auditor", Method::GET, query, None).await;
        assert_eq!(status, StatusCode::OK, "{list}");
        list
    }
}

#[tokio::test]
async fn an_operator_finds_a_run_sees_what_it_did_and_cancels_it() {
    let fixture = Fixture::create().await;
    let operators = Operators::new(&fixture);
    let engine = fixture.engine(&Recorder::good());
    let first = fixture.start("thing/1").await;
    // Ids of one millisecond have no order.
    fixture.pass(std::time::Duration::from_millis(1));
    fixture.start("thing/2").await;
    fixture.settle(&engine, first).await;

    let page = operators.list("?page_size=1&state=running&name=record").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = operators.list(&format!("?page_size=1&cursor={cursor}")).await;
    assert_eq!(rest["items"][0]["id"], json!(first.to_string()));
    assert_eq!(operators.list("?subject=thing/2").await["items"].as_array().unwrap().len(), 1);
    assert!(operators.list("?state=stuck").await["items"].as_array().unwrap().is_empty());

    let (status, shown) = operators.call("auditor", Method::GET, &format!("/{first}"), None).await;
    assert_eq!((status, &shown["waiting"], &shown["overdue"]), (StatusCode::OK, &json!(true), &json!(false)));
    assert_eq!(shown["timeline"][0]["step"], "reserve");
    assert_eq!(shown["timeline"][1]["state"], "waiting");

    let cancel = format!("/{first}/cancel");
    let reason = Some(json!({ "reason": "made by a test" }));
    for who in ["auditor", "nobody"] {
        let (status, _) = operators.call(who, Method::POST, &cancel, reason.clone()).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{who}");
    }
    let (status, cancelled) = operators.call("ops", Method::POST, &cancel, reason.clone()).await;
    assert_eq!(
        (status, &cancelled["cancel_reason"]),
        (StatusCode::OK, &json!("made by a test")),
        "{cancelled}"
    );
    engine.run_once().await.unwrap();
    let (status, _) = operators.call("ops", Method::POST, &cancel, reason).await;
    assert_eq!(status, StatusCode::CONFLICT, "it is being taken back");
    let audited = "SELECT count(*) FROM audit_logs WHERE action = 'saga.cancel' AND target_kind = 'saga_run' AND result = 'allowed'";
    assert_eq!(fixture.count(audited).await, 1);
    let nobody = format!("/{}", kernel::ids::SagaRunId::from(Uuid::from_u128(5)));
    assert_eq!(operators.call("ops", Method::GET, &nobody, None).await.0, StatusCode::NOT_FOUND);
}
